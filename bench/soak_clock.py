"""A clock that is moved on: a phone that sleeps through the hours in which nothing happens.

The daemon's wall clock and its boot clock (which goes on in suspend) show the real time and a
shift, which lies in a file that both processes have mapped. Its monotonic clock stands still
meanwhile, as a sleeping phone's does.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

_NS = struct.Struct("<q")


class MovedClock:
    """The real time and a shift that only grows."""

    def __init__(self, path: Path) -> None:
        """Map the file at ``path``, which is made if it isn't there."""
        with path.open("a+b") as file:
            if file.seek(0, 2) < _NS.size:
                file.truncate(_NS.size)
            self._shift = mmap.mmap(file.fileno(), _NS.size)
        self._real_ns = time.time_ns
        self._real_gettime = time.clock_gettime

    def now(self) -> datetime:
        """The instant that it shows, in UTC."""
        return datetime.fromtimestamp(self.time_ns() / 1e9, UTC)

    def move_on(self, by: timedelta) -> None:
        """Let so much time pass at once."""
        _NS.pack_into(self._shift, 0, self._shift_ns() + round(by.total_seconds() * 1e9))

    def move_to(self, instant: datetime) -> None:
        """Let time pass until then; nothing if that is past."""
        if (left := instant - self.now()) > timedelta(0):
            self.move_on(left)

    def time_ns(self) -> int:
        """As `time.time_ns`."""
        return self._real_ns() + self._shift_ns()

    def clock_gettime(self, clock: int) -> float:
        """As `time.clock_gettime`; only the boot clock is moved."""
        moved = clock == time.CLOCK_BOOTTIME
        return self._real_gettime(clock) + (self._shift_ns() / 1e9 if moved else 0.0)

    @contextmanager
    def in_this_process(self) -> Iterator[None]:
        """Show it to everything that asks the module ``time`` for the wall or the boot clock."""
        with (
            mock.patch.object(time, "time_ns", self.time_ns),
            mock.patch.object(time, "clock_gettime", self.clock_gettime),
        ):
            yield

    def _shift_ns(self) -> int:
        found: int = _NS.unpack_from(self._shift)[0]
        return found
