"""Where a step's batch is cut into micro-batches, each packed and computed as one sequence.

The examples stay in order and whole. On an engine whose graphs have fixed numbers of rows, the
buckets, what fills a bucket up is computed in vain; so there the cut is the one that computes
least, rows of zeros included:

    lengths 60 80 170, buckets 64, 128, 256

    as full as can be   │ 60 80 │ 170 │    128 + 64, and 128 + 64 rows
    the least           │ 60 │ 80 170 │    64, and 256 rows

All tokens go through the layers; through the end of the last one and the head only those go that
predict answers, and they fill buckets of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from npu.pieces import ONE_MORE_PIECE, row_pieces
from trainer.dataset import TokenExample
from trainer.models.config import DecoderConfig
from trainer.models.layout import LINEARS, PRODUCTS, linear_shape
from trainer.packing import common_prefix


@dataclass(frozen=True)
class RowCosts:
    """What an engine with buckets computes for a micro-batch, in multiplications a row of them."""

    buckets: tuple[int, ...]
    token: int
    """Weights that every token of a micro-batch is multiplied with."""
    answer: int
    """Weights that only the rows which predict answers are multiplied with."""

    @classmethod
    def of(cls, config: DecoderConfig, buckets: tuple[int, ...]) -> RowCosts:
        """For a model on an engine."""
        weights = {linear: math.prod(linear_shape(config, linear)) for linear in LINEARS}
        layer = sum(weights.values())
        end = layer - sum(weights[linear] for linear in PRODUCTS["self_attn.qkv_proj"])
        head = config.vocab_size * config.hidden_size
        return cls(buckets, layer * config.num_hidden_layers - end, head + end)

    def of_part(self, tokens: int, answers: int) -> int:
        """Of one micro-batch, rows of zeros and all."""
        rows = ONE_MORE_PIECE + padded(tokens, self.buckets)
        return rows * self.token + padded(answers, self.buckets) * self.answer


def padded(rows: int, buckets: Sequence[int]) -> int:
    """How many rows are computed for so many."""
    return sum(bucket for _, bucket in row_pieces(rows, buckets))


def micro_batches(
    examples: Sequence[TokenExample], max_tokens: int, costs: RowCosts | None = None
) -> list[tuple[int, list[TokenExample]]]:
    """Cut a batch, in order, into parts of at most `max_tokens` packed tokens.

    The start that all prompts of the batch share (the chat template's head) is packed once a part.
    An example longer than the limit is a part of its own.

    Args:
        examples: of one step.
        max_tokens: see above.
        costs: of an engine with buckets; None cuts when the limit is reached.

    Returns:
        (length of the shared prefix, examples) of each part.
    """
    shared = common_prefix([example.prompt for example in examples])
    own = [_own_tokens(example, shared) for example in examples]
    answers = [len(example.answer) for example in examples]
    # From the end: the least that the examples from here on cost, and where their first part ends.
    least: list[tuple[int, int]] = [(0, len(examples))] * (len(examples) + 1)
    for first in reversed(range(len(examples))):
        tokens, rows, found = shared, 0, []
        for last in range(first, len(examples)):
            tokens, rows = tokens + own[last], rows + answers[last]
            if last > first and tokens > max_tokens:
                break
            part = 1 if costs is None else costs.of_part(tokens, rows)
            found.append((part + least[last + 1][0], -last))
        cost, end = min(found)
        least[first] = cost, 1 - end
    parts = []
    first = 0
    while first < len(examples):
        end = least[first][1]
        parts.append((shared, list(examples[first:end])))
        first = end
    return parts


def packed_tokens(shared: int, examples: Sequence[TokenExample]) -> int:
    """Of a part."""
    return shared + sum(_own_tokens(example, shared) for example in examples)


def _own_tokens(example: TokenExample, shared: int) -> int:
    """Packed tokens behind the shared start; the last of an answer predicts nothing."""
    return len(example.prompt) - shared + len(example.answer) - 1
