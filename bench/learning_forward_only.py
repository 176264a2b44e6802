"""Training by forward passes only, the baseline of our first idea: no backward pass at all.

    derivative = (L(θ + h·v) - L(θ - h·v)) / 2h        θ ← θ - rate / (d + 2) · derivative · v

θ are the d numbers of the adapter, v has independent signs. derivative·v is the gradient on
average, but one direction a step sees one of d coordinates: its squared length is on average d
times the gradient's, which is why the steps are so small (Spall 1992; MeZO, arXiv 2305.17333).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.learning_loop import take_steps
from bench.learning_rows import LabelledText
from bench.learning_student import Student, Trained
from trainer.dataset import TokenExample
from trainer.evaluate import TOKENS_AT_ONCE, answer_scores
from trainer.lora import LoraAdapter
from trainer.loss import label_tokens
from trainer.micro_batches import micro_batches, packed_tokens
from trainer.models.decoder import Decoder
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
    dice = torch.Generator().manual_seed(settings.seed)

    def step(batch: list[TokenExample], step_size: float) -> tuple[float, int]:
        direction = torch.randint(0, 2, adapter.flat.shape, generator=dice).float() * 2 - 1
        derivative, loss, used = directional_derivative(
            student.decoder,
            adapter,
            batch,
            direction,
            settings.micro_batch_tokens or TOKENS_AT_ONCE,
        )
        adapter.flat.sub_(direction, alpha=step_size / (len(direction) + 2) * derivative)
        return loss, used

    return Trained(adapter, *take_steps(student.examples(rows), settings, rate, step))


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
        scores = answer_scores(decoder, adapter, part, shared, {})
        summed -= sum(sum(own.values()) for own in scores)
        tokens += packed_tokens(shared, part)
    return summed / label_tokens(batch), tokens
