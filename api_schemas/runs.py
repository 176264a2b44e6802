"""Runs: asking for a training, and watching it."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from api_schemas.base import LARGEST_ID, Answer, Request, Timestamp
from api_schemas.training import TrainingOptions

RunStatus = Literal[
    "queued", "running", "paused", "interrupted", "completed", "failed", "cancelled"
]


# Programs made from OpenAPI documents often know no tuples, but do know lists of two numbers.
StepLoss = Annotated[
    tuple[int, float],
    WithJsonSchema({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
]


class RunRequest(Request):
    """Ask for a training. ``training`` changes the adapter's options for this one run."""

    when: Literal["now", "window"] = Field(
        default="now",
        description="Whether it waits for a window of the schedule. The gates hold either way.",
    )
    override: bool = Field(
        default=False,
        description="Pass those gates that may be passed; needs the scope train:override.",
    )
    training: TrainingOptions | None = None
    warm_start: bool | Annotated[int, Field(ge=1, le=LARGEST_ID)] = Field(
        default=False,
        description="Begin with the adapter of a version instead of a fresh one: true: of the "
        "active one; a number: of that one.",
    )


class Setbacks(Answer):
    """What has gone wrong in a run. Kills never fail it; three crashes at one step do."""

    kills: int = Field(description="Of its worker in a row, without a new checkpoint in between.")
    crashes: int = Field(description="Of its worker at one step, hangs among them.")
    halvings: int = Field(
        description="Of checkpoint interval and memory budget: one for three kills in a row."
    )


class Run(Answer):
    """A training and how far it is."""

    id: int
    adapter: str
    status: RunStatus
    when: Literal["now", "window"] = Field(description="`window`: it proceeds only in windows.")
    override: bool = Field(description="It passes those gates that may be passed.")
    asked_by: Literal["request", "night"] = Field(description="What made it.")
    warm_start: int | None = Field(
        description="The number of the version that it began with; null: with a fresh adapter."
    )
    wanted: Literal["pause", "cancel", "resume"] | None = Field(
        description="Asked of it while its worker is still at work; done at the next step's end."
    )
    phase: str | None = Field(description="What the worker is doing, while it runs.")
    step: int
    total_steps: int | None
    epoch: float | None
    loss: float | None = Field(description="Of the last step: mean NLL per label token.")
    learning_rate: float | None
    losses: list[StepLoss] = Field(description="Pairs of step and loss, thinned out.")
    evaluated: int | None
    evaluating_total: int | None
    resumed_from: int | None = Field(description="The step of the checkpoint it went on from.")
    checkpoint_step: int | None = Field(description="The newest checkpoint: it would go on there.")
    goes_on_at: Timestamp | None = Field(
        description="An interrupted run goes on by itself; not before this, where it says so."
    )
    setbacks: Setbacks
    exact_resume: bool | None
    exact_resume_reason: str | None
    engine: dict[str, Any] | None = Field(description="What computes the frozen products, and why.")
    error: str | None = Field(description="Why it failed, was interrupted, paused or cancelled.")
    forgotten: int = Field(
        description="Examples it goes on without: deleted or expired since it began."
    )
    version: int | None = Field(description="The number of the version it produced.")
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None


class RunList(Answer):
    """An adapter's runs, newest first."""

    runs: list[Run]
    next: str | None = Field(description="The cursor of the next page; null: this is the last.")
