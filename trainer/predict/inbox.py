"""The questions that wait, and those that were taken back; any thread may put some in."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any

from trainer.predict.question import question_id

_log = logging.getLogger(__name__)


class Inbox:
    """Questions in the order in which they came."""

    def __init__(self) -> None:
        """Empty and open."""
        # Of a SimpleQueue `put` may also be called in a signal's handler.
        self._questions: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        self._cancelled: set[int] = set()

    def put(self, line: bytes) -> None:
        """Take in a line: a question, or `{"cancel": id}`. What is neither does nothing."""
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            _log.warning("a line of %d bytes on standard input was not understood", len(line))
        elif type(number := said.get("cancel")) is int:
            self._cancelled.add(number)
        elif question_id(said) is None:
            _log.warning("a question without an id on standard input can't be answered")
        else:
            self._questions.put(said)

    def end(self) -> None:
        """No more will come."""
        self._questions.put(None)

    def take(self, *, wait: bool) -> Mapping[str, Any] | None:
        """The next question; None if none will come, or if there is none and it may not `wait`."""
        try:
            return self._questions.get(block=wait)
        except Empty:
            return None

    def cancelled(self, number: int) -> bool:
        """Whether the question with this id was taken back."""
        return number in self._cancelled

    def done(self, number: int) -> None:
        """The question with this id is over; another one may have it."""
        self._cancelled.discard(number)
