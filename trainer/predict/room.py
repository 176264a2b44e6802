"""How long a question may be so that the process that answers it stays within its memory.

    program │ weights │ tiles │ adapters kept │ the one asked │ one question at a time

A pure function of the budget, the model and the adapter that is asked, so that what is refused once
is refused always. The figures are those of an evaluation (`trainer/memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from npu.engine import Engine
from npu.weights import FrozenWeights
from trainer.memory import MIB, Amounts, Work, predicted_bytes
from trainer.models.config import DecoderConfig
from trainer.models.kv_cache import KeyValueCache

PIECE_TOKENS = 128
"""Tokens of a prompt that are computed at once before a text."""
LOGIT_ROWS = 32
"""Rows of logits that exist at a time while labels are scored."""
KEPT_ADAPTERS = 64 * MIB
"""Of adapters beside the one that is asked."""

_FLOAT = 4
_QUERIES_AT_ONCE = 64
_LONGEST = 1 << 20


@dataclass(frozen=True)
class Room:
    """What is left of a budget when everything is loaded but the adapter that is asked."""

    config: DecoderConfig
    left: Callable[[int], int]
    """Bytes that are left when scoring a pack of so many tokens; negative if it doesn't fit."""
    free: int
    """Bytes that are left for a question."""

    def label_tokens(self, adapter_bytes: int) -> int:
        """The most tokens of a prompt and all its labels together; 0 if there is no room at all."""
        return _most(lambda tokens: self.left(tokens) >= adapter_bytes)

    def text_tokens(self, adapter_bytes: int) -> int:
        """The most tokens of a conversation and its answer; 0 if there is no room at all."""
        most = _most(lambda tokens: self.free - _text_bytes(self.config, tokens) >= adapter_bytes)
        return min(most, self.config.max_position_embeddings)


def only_predicting(config: DecoderConfig, weights: FrozenWeights, engine: Engine) -> Work:
    """What a process holds that trains nothing."""
    return Work(
        config=config,
        weight_bytes=weights.bytes,
        rank=1,
        targets=(),
        layers=1,
        engine=engine.name,
        threads=engine.options.threads,
        longest_example=1,
        longest_evaluation=1,
        examples=0,
    )


def room_to_predict(work: Work, budget: int) -> Room:
    """The room beside `work`, between its steps and evaluations, in `budget` bytes."""

    def left(tokens: int) -> int:
        return budget - predicted_bytes(work, _scoring(tokens))

    return Room(work.config, left, left(1))


def _scoring(tokens: int) -> Amounts:
    return Amounts(
        micro_batch_tokens=1, keep_tokens=0, logit_rows=5 * LOGIT_ROWS, evaluation_tokens=tokens
    )


def _text_bytes(config: DecoderConfig, context: int) -> int:
    """Keys and values of the whole context, and a piece of it on its way."""
    layer = 5 * config.hidden_size + 3 * config.query_width + 3 * config.intermediate_size
    scores = 3 * _QUERIES_AT_ONCE * config.num_attention_heads * context + PIECE_TOKENS * context
    logits = 8 * config.vocab_size
    return KeyValueCache.bytes_for(config, context) + _FLOAT * (
        PIECE_TOKENS * layer + scores + logits
    )


def _most(fits: Callable[[int], bool]) -> int:
    """The largest number that fits, if all smaller ones do."""
    least, most = 0, _LONGEST
    while least < most:
        middle = (least + most + 1) // 2
        if fits(middle):
            least = middle
        else:
            most = middle - 1
    return least
