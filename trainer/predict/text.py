"""What the assistant says next: the prompt in pieces, then token by token.

    prompt ─128─▶ ─128─▶ … ─▶ logits ─▶ token ─▶ logits ─▶ token ─▶ …    keys and values are kept

Nothing outlives the text: its cache, its generator and its stop strings are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trainer.lora import LoraAdapter
from trainer.models.kv_cache import KeyValueCache
from trainer.predict.base import OpenBase
from trainer.predict.growing_text import GrowingText
from trainer.predict.question import TextQuestion
from trainer.predict.refused import Refused
from trainer.predict.room import PIECE_TOKENS
from trainer.predict.sampling import Sampler
from trainer.predict.shelf import adapter_bytes


def write_text(
    base: OpenBase,
    question: TextQuestion,
    look: Callable[[], None],
    give: Callable[[str], None],
) -> dict[str, Any]:
    """The answer, JSON-able; `completion_tokens` counts the end token where there was one.

    Args:
        base: the model.
        question: for it.
        look: called before each pass; may raise to stop.
        give: called with each piece of the text as soon as it is sure.

    Raises:
        Refused: if it can't be answered.
        FloatingPointError: if a logit isn't finite.
    """
    adapter = base.adapter(question.head)
    prompt = _prompt(base, question)
    _check_room(base, question, len(prompt), adapter)
    writer = _Writer(base, adapter, len(prompt) + question.max_tokens, look)
    sampler = Sampler(question.temperature, question.top_p, question.seed)
    text = GrowingText(base.tokenizer.decode, question.stop)
    logits = writer.read(prompt)
    tokens, reason = 0, "length"
    while tokens < question.max_tokens:
        token = sampler.choose(logits)
        tokens += 1
        if token in base.tokenizer.end_token_ids:
            reason = "stop"
            break
        if new := text.add(token):
            give(new)
        if text.stopped:
            break
        if tokens < question.max_tokens:
            logits = writer.read([token])
    if new := text.finish():
        give(new)
    return {
        "text": text.text,
        "finish_reason": "stop" if text.stopped else reason,
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": tokens},
    }


class _Writer:
    """One conversation on its way through the model."""

    def __init__(
        self,
        base: OpenBase,
        adapter: LoraAdapter | None,
        capacity: int,
        look: Callable[[], None],
    ) -> None:
        self._decoder, self._adapter, self._look = base.decoder, adapter, look
        self._cache = KeyValueCache(base.decoder.config, capacity)

    def read(self, ids: list[int]) -> torch.Tensor:
        """Take in the next tokens, at least one; the logits [V] after the last of them."""
        hidden = torch.empty(0)
        for start in range(0, len(ids), PIECE_TOKENS):
            self._look()
            piece = ids[start : start + PIECE_TOKENS]
            last = torch.tensor([len(piece) - 1])
            packed = self._cache.packed(piece)
            hidden = self._decoder.hidden(packed, self._adapter, last, self._cache)
        return self._decoder.logits(hidden)[0]


def _prompt(base: OpenBase, question: TextQuestion) -> list[int]:
    try:
        prompt = base.tokenizer.prompt_ids(question.messages)
    except Exception as error:  # tokenizer and template may quote what they were given
        raise Refused(
            422,
            "messages: expected a conversation that the model's chat template takes, found a"
            f" {type(error).__name__}; correct roles and contents and ask again",
            "messages",
        ) from None
    if not prompt:
        raise Refused(422, "messages: expected a conversation, found none; ask something")
    return prompt


def _check_room(
    base: OpenBase, question: TextQuestion, prompt: int, adapter: LoraAdapter | None
) -> None:
    context = base.decoder.config.max_position_embeddings
    most = base.room.text_tokens(adapter_bytes(adapter))
    if prompt + question.max_tokens <= most:
        return
    what, remedy = "the model's context", ""
    if most < context:
        what, remedy = "what fits into the memory", "raise LORAD_MEMORY_MB, "
    raise Refused(
        422,
        f"expected at most {most} tokens of conversation and answer together, which is {what},"
        f" found {prompt} and max_tokens {question.max_tokens}; {remedy}shorten the conversation"
        " or ask for fewer",
        "max_tokens" if prompt < most else "messages",
    )
