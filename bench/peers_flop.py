"""The floating-point operations that one training step can't do without.

A multiplication and an addition are two. Counted are, per example: every linear of every layer
forwards, and its input gradient where something below can learn; of the last layer the query, the
output and the MLP at the rows that predict a label only; the head at those rows, both ways; the
adapters' products, forwards and backwards; causal attention, two products forwards and four
backwards. Not counted: computing anything again, padding, norms, rope, softmax, the optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers_base import RANK
from bench.peers_task import Example
from trainer.models.config import DecoderConfig
from trainer.models.layout import LINEARS, linear_shape

_OF_ALL_ROWS = ("k_proj", "v_proj")
"""The linears of the last layer that are needed at every row."""

_READ_THE_LAYER_INPUT = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True)
class StepFlop:
    """Of one step, by kind."""

    frozen: int
    head: int
    adapters: int
    attention: int

    @property
    def total(self) -> int:
        return self.frozen + self.head + self.adapters + self.attention


def step_flop(config: DecoderConfig, batch: Sequence[Example]) -> StepFlop:
    """Of a step on examples that share nothing, adapters of rank RANK on all linears."""
    rows = sum(len(example.ids) - 1 for example in batch)
    labelled = sum(len(example.answer) for example in batch)
    frozen = adapters = 0
    for layer in range(config.num_hidden_layers):
        for linear in LINEARS:
            N, K = linear_shape(config, linear)
            is_last = layer == config.num_hidden_layers - 1
            M = labelled if is_last and linear not in _OF_ALL_ROWS else rows
            has_dx = layer > 0 or linear not in _READ_THE_LAYER_INPUT
            frozen += 2 * M * N * K * (1 + has_dx)
            # thin = x A^T, thin B^T; dB = dy^T thin, dthin = dy B, dA = dthin^T x, dthin A
            adapters += 2 * M * RANK * (3 * N + 2 * K + K * has_dx)
    pairs = sum((n := len(example.ids) - 1) * (n + 1) // 2 for example in batch)
    last_pairs = sum(row + 1 for e in batch for row in range(len(e.prompt) - 1, len(e.ids) - 1))
    all_pairs = pairs * (config.num_hidden_layers - 1) + last_pairs
    return StepFlop(
        frozen=frozen,
        head=4 * labelled * config.vocab_size * config.hidden_size,
        adapters=adapters,
        attention=12 * config.query_width * all_pairs,
    )
