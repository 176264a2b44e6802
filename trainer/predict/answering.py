"""One question after the other, from a line of JSON to the events that answer it."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainer.predict.inbox import Inbox
from trainer.predict.question import Head, LabelQuestion, Question, parse_question, question_id
from trainer.predict.refused import Cancelled, Refused

if TYPE_CHECKING:
    from trainer.predict.base import OpenBase

Say = Callable[[str, Mapping[str, Any]], None]
"""Sends one event: its name and its fields."""

_SIGN_OF_LIFE_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Answering:
    """Answers questions with the base model that each is for."""

    def __init__(
        self,
        inbox: Inbox,
        say: Say,
        base_for: Callable[[Head], OpenBase],
        reason_to_stop: Callable[[], str | None],
    ) -> None:
        """Nothing is loaded yet.

        Args:
            inbox: where questions are taken back.
            say: where events go.
            base_for: gives the open base model of a question, or raises Refused.
            reason_to_stop: why nothing should be answered any more, once that is so.
        """
        self._inbox, self._say = inbox, say
        self._base_for, self._reason_to_stop = base_for, reason_to_stop

    def answer(self, raw: Mapping[str, Any]) -> None:
        """Answer a question, or say why it isn't; whatever it is, it ends with one event."""
        number = question_id(raw)
        assert number is not None, "the inbox takes in no others"
        said_at = time.monotonic()

        def look() -> None:
            nonlocal said_at
            if self._inbox.cancelled(number):
                raise Cancelled
            if (reason := self._reason_to_stop()) is not None:
                raise _no_time(reason)
            if time.monotonic() - said_at > _SIGN_OF_LIFE_SECONDS:
                said_at = time.monotonic()
                self._say("answering", {"id": number})

        try:
            look()
            question = parse_question(raw)
            answer = self._answered(question, look)
            self._say("answer", {"id": number, **answer})
        except Cancelled:
            self._say("cancelled", {"id": number})
        except Refused as refused:
            _refuse(self._say, number, refused)
        except Exception as error:  # the next question may go better
            _refuse(self._say, number, _unexpected(error))
        finally:
            self._inbox.done(number)

    def _answered(self, question: Question, look: Callable[[], None]) -> dict[str, Any]:
        base = self._base_for(question.head)
        # Only the process with the lock should hold torch, and only once a question needs it.
        from trainer.predict.labels import predict_labels
        from trainer.predict.text import write_text

        if isinstance(question, LabelQuestion):
            predictions = predict_labels(base, question, look)
            return {"predictions": predictions, "engine": base.engine_name}

        def give(text: str) -> None:
            if question.stream:
                self._say("token", {"id": question.head.id, "text": text})

        return {**write_text(base, question, look, give), "engine": base.engine_name}


def refuse_all(inbox: Inbox, say: Say, reason: str) -> None:
    """Say of all questions that wait that they aren't answered any more, and why."""
    while (raw := inbox.take(wait=False)) is not None:
        number = question_id(raw)
        assert number is not None, "the inbox takes in no others"
        if inbox.cancelled(number):
            say("cancelled", {"id": number})
        else:
            _refuse(say, number, _no_time(reason))


def _refuse(say: Say, number: int, refused: Refused) -> None:
    fields = {"status": refused.status, "error": refused.error, "field": refused.field}
    say("refused", {"id": number, **fields})


def _no_time(reason: str) -> Refused:
    return Refused(503, f"expected time to answer, but {reason}; ask again")


def _unexpected(error: Exception) -> Refused:
    """Named by its kind alone, since a message may quote what it was about."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error("a question was not answered: %s\n%s", type(error).__name__, frames)
    return Refused(
        500,
        f"expected an answer, found a {type(error).__name__} that nobody expected; its place is in"
        " the log",
    )
