"""Exact gradients by backpropagation: the frozen products on the engine, the graph on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from trainer.dataset import TokenExample
from trainer.lora import LoraAdapter
from trainer.loss import answer_loss, label_tokens, micro_batches
from trainer.methods.method import BatchResult
from trainer.models.decoder import Decoder

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
        below: Below | None = None,
    ) -> None:
        """Bind the model and the adapter whose gradients are wanted.

        `below` gives the adapted layers their input, as `trainer.prefix_cache` does; None to
        compute it in the pack.
        """
        self._decoder = decoder
        self._adapter = adapter
        self._micro_batch_tokens = micro_batch_tokens
        self._recompute = recompute
        self._below = below

    def accumulate(self, batch: Sequence[TokenExample]) -> BatchResult:
        """See `Method.accumulate`.

        Raises:
            FloatingPointError: if the loss isn't finite.
        """
        total_labels, total_loss, total_tokens = label_tokens(batch), 0.0, 0
        self._adapter.gradient.zero_()
        for shared, part in micro_batches(batch, self._micro_batch_tokens):
            summed, tokens = answer_loss(
                self._decoder,
                self._adapter,
                part,
                shared,
                recompute=self._recompute,
                below=None if self._below is None else self._below(part, shared),
                weight=1.0 / total_labels,
            )
            loss = summed / total_labels
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"expected a finite loss, found {loss}; lower the learning rate"
                )
            total_loss += loss
            total_tokens += tokens
        return BatchResult(total_loss, total_tokens, total_labels)
