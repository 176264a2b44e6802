"""What a run says of a step it has taken."""

from __future__ import annotations

from typing import Any

from trainer.methods.method import BatchResult
from trainer.spec import RunSpec


def step_event(
    spec: RunSpec,
    step: int,
    examples: int,
    result: BatchResult,
    learning_rate: float,
    grad_norm: float,
    seconds: float,
) -> dict[str, Any]:
    """The event's fields.

    Args:
        spec: of the run.
        step: counted from 1.
        examples: how many make one pass.
        result: of the step's batch.
        learning_rate: that was used.
        grad_norm: before clipping.
        seconds: that the step computed.
    """
    return {
        "step": step,
        "total": spec.total_steps,
        "epoch": step * min(spec.training.batch_size, examples) / examples,
        "loss": result.loss,
        "learning_rate": learning_rate,
        "tokens": result.tokens,
        "label_tokens": result.label_tokens,
        "grad_norm": grad_norm,
        "seconds": seconds,
    }
