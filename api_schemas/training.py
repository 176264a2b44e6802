"""How a run trains: the options an adapter carries and a single run may change."""

from typing import Literal

from pydantic import Field

from api_schemas.base import Request


class TrainingOptions(Request):
    """Options of a training. In a run request only the fields given replace the adapter's."""

    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Of data order and start values.")
    batch_size: int = Field(default=8, ge=1, le=256, description="Examples per optimizer step.")
    epochs: float = Field(
        default=2.0,
        gt=0,
        le=100,
        description="Passes over the training side; at least 40 steps.",
    )
    steps: int | None = Field(
        default=None, ge=1, le=100_000, description="Optimizer steps; null: what epochs make."
    )
    learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="The peak; null: chosen by the number of steps."
    )
    schedule: Literal["linear", "cosine", "constant"] = Field(
        default="linear", description="Of the decay after the warm-up."
    )
    warmup_fraction: float = Field(default=0.1, ge=0, le=1, description="Of the steps.")
    max_grad_norm: float = Field(default=1.0, gt=0, le=1e6)
    weight_decay: float = Field(default=0.0, ge=0, le=1)
    validation_fraction: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="Share of the training side held back to choose the best step; 0: none.",
    )
    patience: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Looks at the held-back rows, every half pass, without a better one before"
        " training ends; null: never early.",
    )
