"""The worker's pace: it works a share of the time, the duty, and rests for what is left of it.

    step 2 s │ rest 2 s * (1/duty - 1) │ step 2 s │ …        duty 0.5: half of the time

A rest is no part of the computation: losses, order, checkpoints and versions don't depend on it.
"""

from __future__ import annotations

import os
import select
import time

_LONGEST_WAIT_SECONDS = 3600.0
"""What `select` takes has an end, and the least duty that can be told has none."""


class Pace:
    """Work is noted, then rested for. One thread rests; any thread, and a signal, may wake it."""

    def __init__(self) -> None:
        """Full duty."""
        self._duty = 1.0
        self._worked = 0.0  # seconds since the last whole rest
        self._rested = 0.0  # seconds of the rest that was broken off since
        self.rested = 0.0
        """Seconds rested so far."""
        # A pipe, because a signal's handler may not take the lock of a `threading.Event` that the
        # interrupted thread itself may be holding.
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)

    @property
    def duty(self) -> float:
        """The share of the time that is worked, above 0 and at most 1."""
        return self._duty

    @duty.setter
    def duty(self, duty: float) -> None:
        if not 0 < duty <= 1:
            raise ValueError(f"expected a duty above 0 and at most 1, found {duty}")
        self._duty = duty
        self.wake()

    def wake(self) -> None:
        """Break the present or the next rest off. Never waits."""
        try:
            os.write(self._wake, b"\0")
        except BlockingIOError:
            return  # a full pipe wakes as well

    def worked(self, seconds: float) -> None:
        """Note work, to be rested for."""
        self._worked += seconds

    def rest(self) -> bool:
        """Rest for the work noted so far, by the present duty.

        False if it was woken, or after an hour: the caller looks what was asked for, and calls
        again for what is left of the rest. A new duty holds for all of it.
        """
        left = max(0.0, self._worked * (1 / self._duty - 1) - self._rested)
        wait = min(left, _LONGEST_WAIT_SECONDS)
        began = time.monotonic()
        woken, _, _ = select.select([self._woken], [], [], wait)
        rested = time.monotonic() - began
        self._rested += rested
        self.rested += rested
        if woken:
            os.read(self._woken, 4096)
        if woken or wait < left:
            return False
        self._worked = self._rested = 0.0
        return True
