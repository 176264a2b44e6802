"""The battery as Termux:API tells of it, which is seldom fast and sometimes never."""

from collections.abc import Callable
from pathlib import Path

from service.bounded_program import BoundedProgram, ProgramError, SilentProgramError
from service.sensors.battery_status import BatteryStatusError, parse
from service.sensors.readings import Battery
from service.termux_program import MOST_BYTES, SECONDS, again_after, find_termux_program

PROGRAM = "termux-battery-status"
_FRESH_SECONDS = 55.0
"""Less than a minute, so that of looks every half minute every second one asks, not every third."""


def find_program() -> Path | None:
    """Where the program lies; None if it isn't installed."""
    return find_termux_program(PROGRAM)


class TermuxBattery:
    """Asks `termux-battery-status` at most once a minute. For one thread at a time."""

    def __init__(
        self,
        clock: Callable[[], float],
        find: Callable[[], Path | None] = find_program,
        timeout: float = SECONDS,
    ) -> None:
        """Take the time from ``clock``, which goes on while the device sleeps."""
        self._clock = clock
        self._find = find
        self._program = BoundedProgram(timeout, MOST_BYTES)
        self._last: Battery | None = None
        self._ask_at = 0.0
        self._failures = 0

    @property
    def installed(self) -> bool:
        """Whether there is such a program now."""
        return self._find() is not None

    def read(self) -> Battery:
        """The battery as of at most a minute ago; unknown, with the reason, if it isn't told."""
        now = self._clock()
        if self._last is None or now >= self._ask_at:
            self._last = self._ask(now)
        return self._last

    def _ask(self, now: float) -> Battery:
        program = self._find()
        if program is None:
            self._ask_at = now  # looking for it again costs nothing
            return Battery.unknown(
                PROGRAM,
                now,
                f"{PROGRAM} is not installed; install the app Termux:API and, in Termux, the "
                "package termux-api",
            )
        try:
            battery = parse(self._output(program), PROGRAM, now)
        except ProgramError as error:
            return self._failed(now, f"{PROGRAM} {error}")
        except BatteryStatusError as error:
            return self._failed(now, f"{PROGRAM} printed {error}")
        self._failures = 0
        self._ask_at = now + _FRESH_SECONDS
        return battery

    def _output(self, program: Path) -> bytes:
        """What it prints. On some phones one call in ten or twenty hangs and the next doesn't: a
        first silence is followed by a second try, or each would cost training minutes."""
        try:
            return self._program.output([str(program)])
        except SilentProgramError:
            if self._failures > 0:
                raise
        return self._program.output([str(program)])

    def _failed(self, now: float, why: str) -> Battery:
        self._failures += 1
        wait = again_after(self._failures)
        self._ask_at = now + wait
        if self._failures > 1:
            why += f", {self._failures} times in a row; it is asked again {_in_words(wait)} later"
        return Battery.unknown(PROGRAM, now, why)


def _in_words(seconds: float) -> str:
    return f"{seconds:g} seconds" if seconds < 60 else f"{seconds / 60:g} minutes"
