"""Nights: whether and how an adapter is trained without being asked."""

from pydantic import Field

from api_schemas.base import Request


class NightOptions(Request):
    """Training in the windows of the schedule. In a change only the fields given change."""

    train: bool = Field(default=True, description="Whether nights train it at all.")
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
