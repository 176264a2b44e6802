"""How long a question may be so that the process that answers it stays within its memory.

    what lasts: program, weights, tiles, adapters … │ the adapter asked │ one question at a time

A pure function of the budget, the model and the adapter that is asked, so that what is refused once
is refused always. The figures are those of an evaluation (`trainer/memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from npu.engine import Engine
from npu.weights import FrozenWeights
from trainer.memory import MIB, Amounts, Work, lasting_bytes, passing_bytes
from trainer.models.attention import QUERIES_AT_ONCE
from trainer.models.config import DecoderConfig
from trainer.models.kv_cache import KeyValueCache

PIECE_TOKENS = 128
"""Tokens of a prompt that are computed at once before a text."""
_AMOUNTS = Amounts(micro_batch_tokens=1, keep_tokens=0, logit_rows=112, evaluation_tokens=1)
LOGIT_ROWS = _AMOUNTS.scored_rows
"""Rows of logits that exist at a time while labels are scored."""
COMMON_TOKENS = 2048
"""What can be asked before memory goes to what makes answers faster."""
KEPT_ADAPTERS = 64 * MIB
"""Of adapters beside the one that is asked."""

_FLOAT = 4
_MASK_BYTES = 4
"""Of each pair of tokens, on top of an evaluation's: who sees whom in a pack of thousands."""
_LONGEST = 1 << 20


@dataclass(frozen=True)
class Room:
    """What is left of a budget when everything is loaded but the adapter that is asked."""

    config: DecoderConfig
    free: int
    """Bytes for a question and its adapter; negative if there is no room at all."""
    scoring: Callable[[int], int]
    """Bytes that it takes to score a pack of so many tokens."""
    anything: int
    """Bytes that it takes to compute anything at all."""

    def label_tokens(self, adapter_bytes: int) -> int:
        """The most tokens of a prompt and all its labels together; 0 if there is no room at all."""
        return _most(lambda tokens: self.scoring(tokens) + adapter_bytes <= self.free)

    def text_tokens(self, adapter_bytes: int) -> int:
        """The most tokens of a conversation and its answer; 0 if there is no room at all."""
        most = _most(lambda tokens: self._writing(tokens) + adapter_bytes <= self.free)
        return min(most, self.config.max_position_embeddings)

    @property
    def spare(self) -> int:
        """What common questions leave over; 0 if not even these fit."""
        tokens = min(COMMON_TOKENS, self.config.max_position_embeddings)
        return max(0, self.free - max(self.scoring(tokens), self._writing(tokens)))

    def without(self, some: int) -> Room:
        """The same with so many bytes less."""
        return replace(self, free=self.free - some)

    def _writing(self, tokens: int) -> int:
        return self.anything + _text_bytes(self.config, tokens)


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


def room_to_predict(work: Work, budget: int, taken: int | None = None) -> Room:
    """The room in a process of `budget` bytes.

    `taken`: how many it holds for good; None: what `work` makes last.
    """

    def scoring(tokens: int) -> int:
        masks = _MASK_BYTES * tokens * tokens
        return masks + passing_bytes(scored, replace(_AMOUNTS, evaluation_tokens=tokens))

    scored = replace(work, longest_example=1, longest_evaluation=1)
    if taken is None:
        taken = lasting_bytes(scored, _AMOUNTS)
    anything = passing_bytes(scored, replace(_AMOUNTS, logit_rows=1))
    return Room(work.config, budget - taken, scoring, anything)


def _text_bytes(config: DecoderConfig, context: int) -> int:
    """Keys and values of the whole context, and a piece of it on its way."""
    layer = 5 * config.hidden_size + 3 * config.query_width + 3 * config.intermediate_size
    scores = 3 * QUERIES_AT_ONCE * config.num_attention_heads * context + PIECE_TOKENS * context
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
