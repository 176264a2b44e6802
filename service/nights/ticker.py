"""The ticker: makes the conductor look every 30 seconds, and at once when something has changed.

APScheduler says when: its jobs only raise a flag on which the ticker's one thread waits, so there
is one look at a time, what is asked for during a look is not lost, and no job is ever long. But
APScheduler reckons by the wall clock, and one that is set back by two hours would leave it silent
for two hours. So the thread waits `PATIENCE_SECONDS` at most, on a clock that nobody sets; then it
looks all the same and has the scheduler reckon anew.
"""

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from service.unexpected import log_unexpected

TICK_SECONDS = 30.0
PATIENCE_SECONDS = 45.0

_TICK = "tick"
_OPENING = "opening"
_GOODBYE_SECONDS = 2.0

_log = logging.getLogger("lorad.ticker")


class Ticker:
    """Calls ``look`` from a thread of its own until `stop`."""

    def __init__(
        self,
        look: Callable[[], datetime | None],
        *,
        tick_seconds: float = TICK_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """``look`` returns a moment at which it wants to be called again, however far away."""
        self._look = look
        self._tick_seconds = tick_seconds
        self._patience_seconds = patience_seconds
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lorad-conductor", daemon=True)
        self._next: datetime | None = None
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": DebugExecutor()},  # in its own thread: all that jobs do is short
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it would tell of each tick

    def start(self) -> None:
        """Look at once, and go on."""
        self._arm()
        self._scheduler.start()
        self._due.set()
        self._thread.start()

    def nudge(self) -> None:
        """Look as soon as the look under way, if there is one, is done. Never waits."""
        self._due.set()

    def stop(self) -> None:
        """Begin no further look. One that hangs is left alone after a moment."""
        self._stopping.set()
        self._due.set()
        self._scheduler.shutdown(wait=False)
        self._thread.join(_GOODBYE_SECONDS)

    def _arm(self) -> None:
        every = IntervalTrigger(seconds=self._tick_seconds, timezone=UTC)
        self._scheduler.add_job(self._due.set, every, id=_TICK, replace_existing=True)

    def _work(self) -> None:
        while True:
            asked = self._due.wait(self._patience_seconds)
            if self._stopping.is_set():
                return
            self._due.clear()
            if not asked:
                _log.warning("no tick came in time: the wall clock was set back")
                self._arm()
            try:
                self._bring_forward(self._look())
            except Exception as error:  # the next look may go better
                log_unexpected(_log, "the conductor", error)

    def _bring_forward(self, moment: datetime | None) -> None:
        if moment is not None and moment != self._next:
            self._next = moment
            then = DateTrigger(moment, timezone=UTC)
            self._scheduler.add_job(self._due.set, then, id=_OPENING, replace_existing=True)
