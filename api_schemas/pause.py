"""The user's pause of all training."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from api_schemas.base import Answer, Request, Timestamp

LONGEST_PAUSE = timedelta(days=366)
"""A year; without an end a pause may last longer."""


def _ahead(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("must be a time with its offset from UTC, as 2026-12-01T07:00:00Z")
    now = datetime.now(UTC)
    if moment <= now:
        raise ValueError("must lie ahead: a pause that ends in the past is none")
    if moment - now > LONGEST_PAUSE:
        raise ValueError("must be within a year; null pauses until training is resumed")
    return text


class NewPause(Request):
    """Pause all training."""

    until: Annotated[str, AfterValidator(_ahead)] | None = Field(
        description="ISO 8601 with offset, ahead by at most a year; null: until it is resumed.",
        examples=[None, "2026-12-01T07:00:00Z"],
    )

    @property
    def until_ms(self) -> int | None:
        """Milliseconds since 1970 UTC."""
        if self.until is None:
            return None
        return int(datetime.fromisoformat(self.until).timestamp() * 1000)


class Pause(Answer):
    """Whether the user has paused all training, since when and until when."""

    paused: bool
    since: Timestamp | None = Field(description="Null: training isn't paused.")
    until: Timestamp | None = Field(description="Null: not paused, or until it is resumed.")
