"""What a run is asked from outside, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trainer.pace import Pace
from trainer.predict.inbox import Inbox

Emit = Callable[[str, Mapping[str, Any]], None]
"""Sends one event: its name and its fields."""


class Requests(Protocol):
    """What is asked of the run while it works."""

    pace: Pace
    """The duty that is asked for, and the rests that keep to it."""

    questions: Inbox
    """What is asked of other adapters on the same base model."""

    def reason_to_stop(self) -> str | None:
        """Why the run should stop, as soon as it should; asked between steps."""
        ...

    def examples_changed(self) -> bool:
        """Whether examples were deleted since this was last asked."""
        ...


class StopRequested(Exception):  # noqa: N818 - not an error: the run ends early and in order
    """The run was asked to stop and has left a checkpoint."""

    def __init__(self, step: int, reason: str) -> None:
        """Say after which step, and why."""
        super().__init__(reason)
        self.step, self.reason = step, reason
