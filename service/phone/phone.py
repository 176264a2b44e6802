"""Keeping the phone awake and its user informed while a worker trains.

    supervisor ──changed──▶ one thread ──▶ wake lock      termux-wake-lock, -unlock
                            asks what is  └▶ notification   termux-notification, -remove
                            being trained

All calls of Termux's commands are made by that thread, one after the other: no run's start, no
request and no sensor ever waits for one that hangs.
"""

import logging
import threading
from datetime import UTC, datetime
from typing import Protocol

from sqlalchemy.exc import DatabaseError

from service.boot_clock import boot_id, boot_seconds
from service.home import Home
from service.nights.local_zone import local_zone
from service.phone import notification, wake_lock
from service.phone.buttons import button_command
from service.phone.command import Command
from service.phone.left_behind import LeftBehind
from service.phone.messages import (
    Buttons,
    TimeLeft,
    paused_message,
    result_message,
    training_message,
)
from service.phone.notification import Message, Notification
from service.phone.wake_lock import Standing, WakeLock
from service.sensors.readings import Readings
from service.settings import Settings
from service.unexpected import log_unexpected
from storage import runs, training_pause, versions
from storage.clock import now_ms
from storage.database import Database
from storage.ledgers import TrainingPause

_TOLD_OF_MS = 12 * 3600 * 1000
"""Versions that are older than this are no news in the last word."""
_TROUBLE_SECONDS = 60.0
_GOODBYE_SECONDS = 8.0

_log = logging.getLogger("lorad.phone")


class Trainer(Protocol):
    """What is asked of the supervisor."""

    @property
    def training(self) -> int | None:
        """The id of the run that is being trained, or is about to be."""
        ...


class Thermometer(Protocol):
    """What is asked of the sensors."""

    def last(self) -> Readings:
        """What they last read; never waits."""
        ...


class Phone:
    """Looks at what is being trained when it has changed, and when something is due."""

    def __init__(
        self,
        settings: Settings,
        home: Home,
        database: Database,
        trainer: Trainer,
        sensors: Thermometer,
        changed: threading.Event,
    ) -> None:
        """``changed`` is set by others when what ``trainer`` is training is another run, or none.

        The ``sensors`` are not asked anew.
        """
        self._home = home
        self._database = database
        self._trainer = trainer
        self._sensors = sensors
        self._changed = changed
        self._left = LeftBehind(home.phone_file, boot_id())
        self._wake_lock = WakeLock(
            enabled=settings.wake_lock == "auto",
            left=self._left,
            take=Command(wake_lock.TAKE, boot_seconds),
            give_back=Command(wake_lock.GIVE_BACK, boot_seconds),
        )
        self._notification = Notification(
            enabled=settings.notification == "auto",
            left=self._left,
            show=Command(notification.SHOW, boot_seconds),
            remove=Command(notification.REMOVE, boot_seconds),
            clock=boot_seconds,
        )
        self._time_left = TimeLeft(boot_seconds)
        self._idle_since: float | None = boot_seconds()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lorad-phone", daemon=True)

    @property
    def wake_lock(self) -> Standing:
        """How it is with the wake lock."""
        return self._wake_lock.standing

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Take everything back; what that takes longer than a moment for is left to the next start.

        Call it when nothing trains any more.
        """
        self._stopping.set()
        self._changed.set()
        self._thread.join(_GOODBYE_SECONDS)
        if self._left.things.wake_lock:
            _log.warning("the wake lock isn't given back yet: the next start does that")

    def _work(self) -> None:
        while True:
            self._changed.clear()
            if self._stopping.is_set():  # looked at after that: what is set from now on is kept
                break
            try:
                wait = self._look()
            except Exception as error:  # nothing of ours may end the thread
                log_unexpected(_log, "the phone", error)
                wait = _TROUBLE_SECONDS
            self._changed.wait(wait)
        try:
            self._wake_lock.let_go()
            self._notification.take_back(at_last=True)
        except Exception as error:
            log_unexpected(_log, "the phone", error)

    def _look(self) -> float | None:
        """Do what is due; in how many seconds to look again, None: when something changes."""
        training = self._trainer.training
        if training is not None:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = boot_seconds()
        idle = None if self._idle_since is None else boot_seconds() - self._idle_since
        waits = [self._wake_lock.look(idle)]
        if not self._stopping.is_set():
            waits.append(self._look_at_screen(training, idle))
        return min((wait for wait in waits if wait is not None), default=None)

    def _look_at_screen(self, training: int | None, idle: float | None) -> float | None:
        try:
            if self._notification.usable:
                return self._tell(training, idle)
            return self._notification.take_back()  # an earlier daemon's
        except (DatabaseError, OSError) as error:
            _log.error("the notification can't be shown: %s", type(error).__qualname__)
            return _TROUBLE_SECONDS

    def _tell(self, training: int | None, idle: float | None) -> float | None:
        shown = self._notification.shown
        if training is not None:
            message = self._progress(training)
            steady = message.stage == "training"
            again = notification.REFRESH_SECONDS if steady else notification.STAGE_SECONDS
            return min(self._notification.put(message) or again, again)
        if idle is None or shown is None:
            return None
        with self._database.read() as session:  # and not while a command hangs: it holds up erasing
            pause = training_pause.active(session, now_ms())
            made = versions.trained_since(session, now_ms() - _TOLD_OF_MS)
        if pause is not None:
            return self._notification.put(self._paused(pause)) or notification.REFRESH_SECONDS
        if shown == "training" and idle < wake_lock.KEEP_SECONDS:
            return wake_lock.KEEP_SECONDS - idle
        result = result_message(made) if shown == "training" else None
        return self._notification.take_back() if result is None else self._notification.put(result)

    def _progress(self, training: int) -> Message:
        with self._database.read() as session:
            run = runs.by_id(session, training)
        temperature = self._sensors.last().battery_temperature.value
        left = None if run is None else self._time_left.seconds(run)
        buttons = self._buttons(("Pause", ("pause",)), ("Stop", ("pause", "--until", "window")))
        return training_message(run, temperature, left, buttons)

    def _paused(self, pause: TrainingPause) -> Message:
        until = None
        if pause.until is not None:
            end = datetime.fromtimestamp(pause.until / 1000, UTC).astimezone(local_zone())
            until = f"{end:%a %d %b %H:%M}"
        return paused_message(until, self._buttons(("Resume", ("resume",))))

    def _buttons(self, *told: tuple[str, tuple[str, ...]]) -> Buttons:
        commands = [(label, button_command(self._home.path, *words)) for label, words in told]
        return tuple((label, command) for label, command in commands if command is not None)
