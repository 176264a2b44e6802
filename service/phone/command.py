"""A command of Termux that tells or asks Android something: it may hang, and is then let be."""

import logging
from collections.abc import Callable
from pathlib import Path

from service.bounded_program import BoundedProgram, ProgramError
from service.termux_program import MOST_BYTES, SECONDS, again_after, find_termux_program

_log = logging.getLogger("lorad.phone")


class Command:
    """One command. For one thread at a time, which waits for it at most six seconds."""

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        find: Callable[[str], Path | None] = find_termux_program,
        seconds: float = SECONDS,
    ) -> None:
        """Take the time from ``clock``, which goes on while the phone sleeps."""
        self.name = name
        self._clock = clock
        self._find = find
        self._program = BoundedProgram(seconds, MOST_BYTES)
        self._failures = 0
        self._again_at = 0.0
        self.complaint: str | None = None
        """What went wrong at the last call; None: nothing did."""

    @property
    def installed(self) -> bool:
        """Whether there is such a command now."""
        return self._find(self.name) is not None

    @property
    def wait(self) -> float:
        """How many seconds to let it be after failures; 0: it may be called."""
        return max(0.0, self._again_at - self._clock())

    def call(self, *arguments: str) -> bool:
        """Call it, whatever `wait` says; whether it did what it was asked, as far as it tells."""
        program = self._find(self.name)
        try:
            if program is None:
                raise ProgramError("is not installed")
            self._program.output([str(program), *arguments])
        except ProgramError as error:
            self._failures += 1
            self._again_at = self._clock() + again_after(self._failures)
            self.complaint = f"{self.name} {error}"
            if self._failures == 1:  # and not each time
                _log.warning("%s", self.complaint)
            return False
        if self._failures:
            _log.info("%s works again", self.name)
        self._failures, self._again_at, self.complaint = 0, 0.0, None
        return True
