"""Training by forward passes only, the baseline of our first idea: no backward pass at all.

    derivative = (L(θ + h·v) - L(θ - h·v)) / 2h        θ ← θ - rate / (d + 2) · derivative · v

θ are the d numbers of the adapter, v has independent signs. derivative·v is the gradient on
average, but one direction a step sees one of d coordinates: its squared length is on average d
times the gradient's, which is why the steps are so small (Spall 1992; MeZO, arXiv 2305.17333).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from bench.learning_rows import LabelledText
from bench.learning_student import Student, Trained
from trainer.dataset import TokenExample, batch_ids
from trainer.evaluate import TOKENS_AT_ONCE
from trainer.lora import LoraAdapter
from trainer.loss import label_tokens, pack_for_loss
from trainer.micro_batches import micro_batches
from trainer.models.decoder import Decoder
from trainer.optimizer import learning_rate_at
from trainer.spec import TrainingSettings

H = 1e-3
"""Large enough for the rounding of fp32 losses, small enough for the curvature (tested)."""


def forward_only(
    student: Student,
    adapter: LoraAdapter,
    rows: Sequence[LabelledText],
    settings: TrainingSettings,
    rate: float,
) -> Trained:
    """The steps and batches of first-order training with these settings; `rate` is the peak."""
    data, total = student.examples(rows), settings.total_steps(len(rows))
    dice = torch.Generator().manual_seed(settings.seed)
    losses, tokens, seconds = [], 0, 0.0
    for step in range(total):
        began = time.process_time()
        ids = batch_ids(list(data), settings.seed, settings.batch_size, step)
        direction = torch.randint(0, 2, adapter.flat.shape, generator=dice).float() * 2 - 1
        derivative, loss, used = directional_derivative(
            student.decoder,
            adapter,
            [data[i] for i in ids],
            direction,
            settings.micro_batch_tokens or TOKENS_AT_ONCE,
        )
        step_size = learning_rate_at(step, total, rate, settings) / (len(direction) + 2)
        adapter.flat.sub_(direction, alpha=step_size * derivative)
        losses.append(loss)
        tokens += used
        seconds += time.process_time() - began
    return Trained(adapter, losses, tokens, seconds)


def directional_derivative(
    decoder: Decoder,
    adapter: LoraAdapter,
    batch: Sequence[TokenExample],
    direction: torch.Tensor,
    micro_batch_tokens: int,
) -> tuple[float, float, int]:
    """Of the mean answer-token loss, that loss, and the tokens that went through the layers.

    The adapter is as it was afterwards.
    """
    kept = adapter.flat.clone()
    adapter.flat.add_(direction, alpha=H)
    above, tokens = _loss(decoder, adapter, batch, micro_batch_tokens)
    adapter.flat.copy_(kept).sub_(direction, alpha=H)
    below, again = _loss(decoder, adapter, batch, micro_batch_tokens)
    adapter.flat.copy_(kept)
    return (above - below) / (2 * H), (above + below) / 2, tokens + again


def _loss(
    decoder: Decoder, adapter: LoraAdapter, batch: Sequence[TokenExample], micro_batch_tokens: int
) -> tuple[float, int]:
    summed, tokens = 0.0, 0
    for shared, part in micro_batches(batch, micro_batch_tokens):
        packed, rows, targets = pack_for_loss(part, shared)
        distinct, place = torch.unique(rows, return_inverse=True)
        logits = decoder.logits(decoder.hidden(packed, adapter, distinct))
        summed -= float(torch.log_softmax(logits.double(), dim=-1)[place, targets].sum())
        tokens += len(packed.ids)
    return summed / label_tokens(batch), tokens
