"""The desk: one question at a time, answered by whoever may hold torch now.

    nothing trains    the child `python -m trainer.predictor`, started by the first question; it
                      leaves after `predict_idle_seconds` without one
    a run trains      its worker, between two steps, if `predict_while_training` is `serve` and it
                      has the same base model loaded; else the question is refused with 503
    a run is to begin the question under way has `ROOM_SECONDS` left, then the child is ended

One thread takes the questions from the line. What answers is heard in other threads, which only
put what was said where the first one finds it.
"""

import logging
import threading
from collections import deque
from typing import Any, Protocol

from api_schemas.problems import FieldError
from service import device
from service.door.problems import Refusal, field_name, not_now
from service.gates.limits import Limits
from service.home import Home
from service.locks import is_held
from service.predictions.answering_worker import AnsweringWorker
from service.predictions.events import (
    Answer,
    Cancelled,
    Event,
    EventError,
    Failed,
    Ready,
    Refused,
    Token,
    parse,
)
from service.predictions.patience import Patience
from service.predictions.predictor_process import GONE_RETRY_SECONDS, PredictorProcess
from service.predictions.question import Question
from service.predictions.waiting_line import WaitingLine
from service.settings import Settings
from service.unexpected import log_unexpected

ROOM_SECONDS = 3.0
"""What is left to the question under way when a training is to begin."""
CANCEL_SECONDS = 10.0
"""How long a question that was given up may go on before what answers it is killed."""
END_SECONDS = 3.0
"""How long the child may take to end in order."""
STOP_SECONDS = 1.0
"""What is left to the question under way when the daemon ends."""
TRAINING_RETRY_SECONDS = 60

_SLICE_SECONDS = 0.5
_MADE_ROOM_SECONDS = 20.0
_SETTLED_SECONDS = 5.0
_SOON_SECONDS = 5
_MIB = 1024 * 1024

_STATUSES = (409, 410, 422, 503)
"""What a question may be refused with; whatever else is said is an error of who answers."""

_TRAINS = "a run trains now, and one process at a time may have a base model loaded"

_log = logging.getLogger("lorad.predictions")


class _Answerer(Protocol):
    def ask(self, message: dict[str, Any]) -> None: ...
    def done(self) -> None: ...
    def give_up(self) -> None: ...


class PredictionDesk:
    """Where routes ask, and the supervisor asks for room. Safe to use from several threads."""

    def __init__(self, settings: Settings, home: Home, limits: Limits) -> None:
        """Bind to a home; `start` begins. ``limits`` tells how little memory is too little."""
        self._settings = settings
        self._home = home
        self._limits = limits
        self._guard = threading.Condition()
        self._line = WaitingLine()
        self._inbox: deque[Event | Refusal] = deque()
        self._asked: object | None = None  # whose words go into the inbox
        self._number = 0
        self._child: PredictorProcess | None = None
        self._worker: AnsweringWorker | None = None
        self._training = False
        self._forget = False
        self.closing = False
        """Set by `stop`, and before it by a signal's handler; seen within half a second."""
        self._thread = threading.Thread(target=self._work, name="lorad-predictions", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Refuse who waits, end the child, and answer nobody any more."""
        with self._guard:
            self.closing = True
            self._guard.notify_all()
        self._thread.join(STOP_SECONDS + 2 * _MADE_ROOM_SECONDS)

    def ask(self, question: Question) -> None:
        """Put a question into the line; its channel tells what comes of it.

        Raises:
            Refusal: 429 or 503 if too many wait, or the daemon ends.
        """
        with self._guard:
            if self.closing:
                raise _ending()
            self._line.join(question)
            self._guard.notify_all()

    def leave(self, question: Question) -> None:
        """Nobody waits for the answer any longer: a question that isn't answered yet is given up.

        Call it also after an answer, when it does nothing.
        """
        with self._guard:
            question.left = True
            self._line.leave(question)
            self._guard.notify_all()

    # What the supervisor asks for: `service.runs.cohabitant.Cohabitant`.

    def make_room(self) -> None:
        """Start no child from now on; returns once there is none, or after 20 seconds."""
        with self._guard:
            self._training = True
            self._guard.notify_all()
            self._guard.wait_for(lambda: self._child is None, _MADE_ROOM_SECONDS)

    def room_again(self) -> None:
        """Nothing is to be trained for now."""
        with self._guard:
            self._training = False
            self._guard.notify_all()

    def worker_began(self, worker: AnsweringWorker) -> None:
        """This worker trains now."""
        with self._guard:
            self._worker = worker
            self._guard.notify_all()

    def worker_ended(self) -> None:
        """It has ended."""
        with self._guard:
            worker, self._worker = self._worker, None
        if worker is not None:
            why = "the training whose worker was asked has ended; ask again"
            self._deliver(worker, not_now(why, GONE_RETRY_SECONDS))

    def worker_said(self, line: bytes) -> None:
        """A line about a prediction came from the training worker."""
        with self._guard:
            worker = self._worker
        if worker is None:
            return
        try:
            self._deliver(worker, parse(line))
        except EventError as error:
            _log.error("the training worker said what is no answer: %s", error)
            self._deliver(worker, Refusal(502, "the training worker's answer can't be read"))

    @property
    def holds_lock(self) -> bool:
        """Whether the child has worker.lock: it writes nothing into the home."""
        with self._guard:
            return self._child is not None and self._child.ready and not self._child.gone

    def forget(self) -> None:
        """Have the child, and with it all that it has read, end after the question under way."""
        with self._guard:
            self._forget = self._child is not None
            self._guard.notify_all()

    # The desk's own thread.

    def _work(self) -> None:
        while not self.closing:
            question = self._whose_turn()
            if question is None:
                self._end_child()
                continue
            try:
                self._answer(question)
            except Refusal as refusal:
                question.channel.put(refusal)
            except Exception as error:  # no error of ours may end the desk
                log_unexpected(_log, "a prediction", error)
                question.channel.put(Refusal(502, "an error in lorad itself; the log says where"))
                self._end_child()
        self._end_child()
        with self._guard:
            everybody = self._line.take_all()
        for question in everybody:
            question.channel.put(_ending())

    def _whose_turn(self) -> Question | None:
        """The next question; None if the child, which there may be, is to end."""
        idle = 0.0
        with self._guard:
            while not self.closing:
                child = self._child
                if child is not None and (self._training or self._forget or child.gone):
                    return None
                if self._line:
                    return self._line.take()
                if child is None:
                    self._guard.wait()
                    continue
                if idle >= self._settings.predict_idle_seconds:
                    return None
                slice_ = min(_SLICE_SECONDS, self._settings.predict_idle_seconds - idle)
                if not self._guard.wait(slice_):
                    idle += slice_
        return None

    def _answer(self, question: Question) -> None:
        if question.left:
            return
        answerer = self._answerer(question)
        self._number += 1
        with self._guard:
            self._asked = answerer
            self._inbox.clear()
        try:
            answerer.ask(question.message(self._number))
            self._hear_out(answerer, question, self._number)
        finally:
            answerer.done()
            with self._guard:
                self._asked = None

    def _answerer(self, question: Question) -> _Answerer:
        if self.closing:
            raise _ending()
        with self._guard:
            if self._child is None:  # between two runs, or before and after one
                self._guard.wait_for(self._is_settled, _SETTLED_SECONDS)
            training, worker = self._training, self._worker
        if not training:
            return self._child or self._begin_child()
        if self._settings.predict_while_training == "refuse":
            raise not_now(
                f"{_TRAINS}; ask again when it has ended, or start lorad with "
                "LORAD_PREDICT_WHILE_TRAINING=serve",
                TRAINING_RETRY_SECONDS,
            )
        if worker is None:
            raise not_now("a training is about to begin or to end; ask again", _SOON_SECONDS)
        if worker.base_hash != question.base_hash:
            raise not_now(
                f"{_TRAINS}: that of the run is {worker.base_hash}, that of this adapter "
                f"{question.base_hash}; ask again when it has ended",
                TRAINING_RETRY_SECONDS,
            )
        return worker

    def _is_settled(self) -> bool:
        return not self._training or self._worker is not None or self.closing

    def _begin_child(self) -> PredictorProcess:
        free = device.memory().free_bytes
        floor = self._limits.memory_floor_bytes
        if free is not None and free < floor:
            raise not_now(
                f"expected at least {floor // _MIB} MiB of memory to be had before a base model "
                f"is loaded, found {free // _MIB} MiB; close other apps, and ask again",
                TRAINING_RETRY_SECONDS,
            )
        if is_held(self._home.worker_lock):
            raise not_now(
                "another process holds worker.lock of this home, and one at a time may have a "
                "base model loaded; ask again when it has ended",
                _SOON_SECONDS,
            )
        try:
            child = PredictorProcess(self._settings, self._home, self._deliver)
        except OSError as error:
            why = f"the process that predicts can't be started: {error.strerror or error}"
            raise not_now(f"{why}; ask again", _SOON_SECONDS) from None
        _log.info("predictor %d started", child.pid)
        with self._guard:
            self._child, self._forget = child, False
        return child

    def _end_child(self) -> None:
        child = self._child
        if child is None:
            return
        if child.end(END_SECONDS):
            _log.info("predictor %d has ended", child.pid)
        else:
            _log.error("predictor %d does not end, even killed", child.pid)
        with self._guard:
            self._child, self._forget = None, False
            self._guard.notify_all()

    def _deliver(self, source: object, event: Event | Refusal) -> None:
        with self._guard:
            if source is self._asked:
                self._inbox.append(event)
            self._guard.notify_all()

    def _hear_out(self, answerer: _Answerer, question: Question, number: int) -> None:
        patience = Patience(self._settings.predict_seconds)
        told = False
        while True:
            event = self._next_event(answerer, question, patience)
            if question.left and not told:
                answerer.ask({"cancel": number})
                told = True
            if event is None:
                if patience.left > 0:
                    continue
                if not told:
                    answerer.ask({"cancel": number})
                answerer.give_up()
                raise not_now(
                    patience.because
                    or f"no answer came within {self._settings.predict_seconds:.0f} s; ask for "
                    "less at once, or set LORAD_PREDICT_SECONDS",
                    _SOON_SECONDS,
                )
            if isinstance(event, Refusal):  # what answered has ended
                raise event
            patience.sign_of_life()
            if isinstance(event, Ready | Failed) or event.id != number:
                continue  # of a question that was given up
            if isinstance(event, Refused):
                raise _refusal(event)
            if isinstance(event, Cancelled):
                raise not_now("the prediction was given up; ask again", _SOON_SECONDS)
            if isinstance(event, Answer | Token):
                question.channel.put(event)
            if isinstance(event, Answer):
                return

    def _next_event(
        self, answerer: _Answerer, question: Question, patience: Patience
    ) -> Event | Refusal | None:
        """What was said next; None when something else has changed, or a slice has passed."""
        with self._guard:
            if self.closing:
                patience.shorten(STOP_SECONDS, "the daemon ends; ask again when it is back")
            if question.left:
                patience.shorten(CANCEL_SECONDS, "nobody waits for the answer any more")
            if self._training and answerer is self._child:
                patience.shorten(ROOM_SECONDS, f"{_TRAINS}; ask again")
            if self._inbox:
                return self._inbox.popleft()
            slice_ = min(_SLICE_SECONDS, max(patience.left, 0.0))
            if not self._guard.wait(slice_):
                patience.pass_time(slice_)
            return self._inbox.popleft() if self._inbox else None


def _ending() -> Refusal:
    return not_now("the daemon ends; ask again when it is back", _SOON_SECONDS)


def _refusal(event: Refused) -> Refusal:
    errors = []
    if event.field is not None:
        parts = [int(part) if part.isdigit() else part for part in event.field.split(".")]
        errors.append(FieldError(field=field_name(("body", *parts)), message=event.error))
    again = {"Retry-After": str(_SOON_SECONDS)} if event.status == 503 else None
    status = event.status if event.status in _STATUSES else 502
    return Refusal(status, event.error, errors, headers=again)
