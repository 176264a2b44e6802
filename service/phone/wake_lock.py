"""The wake lock: it keeps the phone from sleeping while a worker trains, and no longer.

Termux has ONE wake lock, and nobody counts who took it: `termux-wake-unlock` also ends the lock
that the user took by hand, or that another program of Termux wants. Nor can anybody ask whether it
is held. So lorad takes it when a training begins, gives it back once nothing has trained for
`KEEP_SECONDS`, and gives back only what it asked for itself. That it asks stands on the disk before
it asks; and a call that failed or hung may have taken the lock all the same.
"""

import logging
from dataclasses import dataclass
from typing import Literal

from service.phone.command import Command
from service.phone.left_behind import LeftBehind

TAKE = "termux-wake-lock"
GIVE_BACK = "termux-wake-unlock"
KEEP_SECONDS = 60.0
"""Over the gap between two runs, a gate that closes for a moment, a killed worker's first wait. A
longer pause, as to cool down, lets the phone sleep; the heartbeat wakes it, every 15 minutes."""

_GLOBAL = (
    "Termux has one wake lock and counts nobody: when lorad gives it back, one that you took by "
    "hand ends too (LORAD_WAKE_LOCK=off leaves it alone)"
)

_log = logging.getLogger("lorad.phone")

State = Literal["held", "not-held", "unavailable", "none"]


@dataclass(frozen=True)
class Standing:
    """How it is with the wake lock, and why, in words. ``none``: this device takes none."""

    state: State
    why: str


class WakeLock:
    """Takes it and gives it back. For one thread; any may read `standing`."""

    def __init__(
        self, *, enabled: bool, left: LeftBehind, take: Command, give_back: Command
    ) -> None:
        """``left`` says what an earlier daemon didn't give back."""
        self._enabled = enabled
        self._left = left
        self._take = take
        self._give_back = give_back
        self._held = False  # for certain: this process took it
        self._told: Standing | None = None  # None: nothing is done with it

    @property
    def standing(self) -> Standing:
        """How it is with it now."""
        return self._told or self._idle()

    def look(self, idle_seconds: float | None) -> float | None:
        """Do what is to be done now; in how many seconds to look again, if ever unasked.

        Args:
            idle_seconds: for how long nothing has trained, since the daemon's start at the most;
                None: a worker trains, or is about to.
        """
        if idle_seconds is None:
            return self._hold()
        if not self._left.things.wake_lock:
            self._told = None
            return None
        if idle_seconds < KEEP_SECONDS:
            if self._held:
                self._told = Standing("held", f"nothing trains for now; {_GLOBAL}")
            return KEEP_SECONDS - idle_seconds
        if self._give_back.wait == 0:
            self.let_go()
        return self._give_back.wait if self._left.things.wake_lock else None

    def let_go(self) -> None:
        """Give it back now, if it was ever asked for."""
        if not self._left.things.wake_lock:
            return
        self._held = False  # also if the call fails: it may have been heard
        if self._give_back.call():
            self._left.change(wake_lock=False)
            self._told = None
            _log.info("the wake lock is given back")
        else:
            self._told = Standing(
                "unavailable", f"{self._give_back.complaint}; lorad took it, and tries again"
            )

    def _hold(self) -> float | None:
        if self._held:
            self._told = Standing("held", f"a worker trains; {_GLOBAL}")
            return None
        if (why_none := self._why_none()) is not None:
            self._told = Standing("none", why_none)
            return None
        if self._take.wait == 0:
            self._try_to_take()
        return None if self._held else self._take.wait or KEEP_SECONDS

    def _try_to_take(self) -> None:
        try:
            self._left.change(wake_lock=True)
        except OSError as error:  # a lock of which nobody knows later would never be given back
            why = f"what lorad takes can't be written down: {error.strerror or error}"
            self._told = Standing("unavailable", why)
            return
        self._told = Standing("not-held", f"{TAKE} is being asked for it")
        self._held = self._take.call()
        if self._held:
            self._told = Standing("held", f"a worker trains; {_GLOBAL}")
            _log.info("the wake lock is taken")
        else:
            self._told = Standing(
                "unavailable",
                f"{self._take.complaint}; it is tried again, and may be held all the same",
            )

    def _idle(self) -> Standing:
        if self._left.things.wake_lock:
            why = "an earlier daemon took it and was killed; it is given back unless a run starts"
            return Standing("held", why)
        if (why_none := self._why_none()) is not None:
            return Standing("none", why_none)
        return Standing("not-held", "nothing trains")

    def _why_none(self) -> str | None:
        if not self._enabled:
            return "LORAD_WAKE_LOCK is off"
        for command in (self._take, self._give_back):
            if not command.installed:
                return f"{command.name} is not installed"
        return None
