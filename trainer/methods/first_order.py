"""Exact gradients by backpropagation: the frozen products on the engine, the graph on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.loss import answer_loss, label_tokens
from trainer.memory import Amounts
from trainer.methods.method import BatchResult
from trainer.micro_batches import RowCosts, micro_batches, packed_tokens
from trainer.models.decoder import Decoder
from trainer.models.keep import Keep, numbers_kept

Below = Callable[[Sequence[TokenExample], int], torch.Tensor]
"""What the layers below the adapted ones make of a packed sequence, [T, hidden_size]: called with
its examples, in order, and the length of the start that all their prompts share."""


class FirstOrder:
    """Backpropagation over micro-batches; a token counts the same in whichever it falls."""

    name = "first_order"

    def __init__(
        self,
        decoder: Decoder,
        adapter: LoraAdapter,
        *,
        micro_batch_tokens: int,
        recompute: bool,
        keep_tokens: int = 0,
        logit_rows: int | None = None,
        below: Below | None = None,
    ) -> None:
        """Bind the model and the adapter whose gradients are wanted.

        Args:
            decoder: the base model.
            adapter: what learns.
            micro_batch_tokens: packed tokens that are computed at once; a longer example is
                computed alone.
            recompute: see `Decoder.forward`.
            keep_tokens: micro-batches of at most so many tokens aren't recomputed.
            logit_rows: see `trainer.loss.answer_loss`.
            below: gives the adapted layers their input, as `trainer.prefix_cache` does; None to
                compute it in the pack.
        """
        self._decoder = decoder
        self._adapter = adapter
        self._micro_batch_tokens = micro_batch_tokens
        self._recompute = recompute
        self._below = below
        self._keep_tokens = keep_tokens
        self._logit_rows = logit_rows
        whole = keep_tokens if recompute else max(keep_tokens, micro_batch_tokens)
        ranks = adapter.rank * len(adapter.targets)
        numbers = numbers_kept(
            decoder.config, len(adapter.layers), ranks, whole, micro_batch_tokens
        )
        self._room = Keep(numbers, adapter.flat.dtype)
        buckets = decoder.engine.buckets
        self._costs = None if buckets is None else RowCosts.of(decoder.config, buckets)

    @classmethod
    def by_plan(
        cls, decoder: Decoder, adapter: LoraAdapter, amounts: Amounts, below: Below | None = None
    ) -> FirstOrder:
        """As a plan says."""
        decoder.engine.keep_decoded(amounts.decoded_bytes)
        return cls(
            decoder,
            adapter,
            micro_batch_tokens=amounts.micro_batch_tokens,
            recompute=True,
            keep_tokens=amounts.keep_tokens,
            logit_rows=amounts.logit_rows,
            below=below,
        )

    def accumulate(self, batch: Sequence[TokenExample]) -> BatchResult:
        """See `Method.accumulate`.

        Raises:
            FloatingPointError: if the loss isn't finite.
        """
        total_labels, total_loss, total_tokens = label_tokens(batch), 0.0, 0
        self._adapter.gradient.zero_()
        for shared, part in micro_batches(batch, self._micro_batch_tokens, self._costs):
            summed, tokens = answer_loss(
                self._decoder,
                self._adapter,
                part,
                shared,
                recompute=self._recompute and packed_tokens(shared, part) > self._keep_tokens,
                below=None if self._below is None else self._below(part, shared),
                room=self._room,
                weight=1.0 / total_labels,
                logit_rows=self._logit_rows,
            )
            loss = summed / total_labels
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"expected a finite loss, found {loss}; lower the learning rate"
                )
            total_loss += loss
            total_tokens += tokens
        return BatchResult(total_loss, total_tokens, total_labels)
