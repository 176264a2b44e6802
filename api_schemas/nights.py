"""Nights: whether and how an adapter is trained without being asked."""

from typing import Literal, get_args

from pydantic import Field

from api_schemas.base import Answer, Request, Timestamp

DueRule = Literal["asked-now", "unfinished", "enough-new", "waited-long"]
NotDueRule = Literal[
    "training",
    "paused",
    "backing-off",
    "base-model",
    "nights-off",
    "budget-used",
    "no-examples",
    "nothing-new",
    "too-few-new",
]
Rule = Literal[DueRule, NotDueRule]
RULES: tuple[Rule, ...] = (*get_args(DueRule), *get_args(NotDueRule))

HeldBy = Literal["pause", "window", "turn", "gates", "worker"]


class NightOptions(Request):
    """Training in the windows of the schedule. In a change only the fields given change."""

    train: bool = Field(default=True, description="Whether nights train it without being asked.")
    min_new: int = Field(
        default=20, ge=1, le=100_000, description="New training examples that make it due."
    )
    wait_days: int = Field(
        default=2,
        ge=1,
        le=365,
        description="It is due with fewer, too, once one has waited this many days.",
    )
    minutes: int = Field(default=120, ge=1, le=1440, description="Of training in one night.")
    warm_start: bool = Field(
        default=False,
        description="Nightly runs begin with the active version, if there is one, instead of with "
        "a fresh adapter.",
    )


class Why(Answer):
    """Whose turn it is: the rule that applies to an adapter, and what it waits for."""

    rule: Rule = Field(
        description="Of the selection. The first four make it due; while it is being trained, the "
        "one by which it was chosen."
    )
    held_by: HeldBy | None = Field(
        description="What keeps one that is due from being trained now; null: nothing, or it isn't."
    )
    says: str = Field(description="Both in words.")
    place: int | None = Field(description="In the line of those that are due; 1 is next.")
    window_open: bool
    next_window: Timestamp | None = Field(description="When the next window of the schedule opens.")
    minutes_used: float = Field(description="Of training in this night.")
    minutes: int = Field(description="Its budget for one night.")
