"""The sensors of this device, by the source that the settings name."""

import threading
from collections.abc import Callable

from service.boot_clock import boot_seconds
from service.home import Home
from service.sensors.fake import FakeSensors
from service.sensors.readings import NOT_READ, Readings
from service.settings import Settings


class Sensors:
    """Reads them one look at a time, from any thread, and remembers the last look."""

    def __init__(self, settings: Settings, home: Home) -> None:
        """Choose the sources; nothing is read yet."""
        self._look: Callable[[], Readings] = (
            FakeSensors(home, boot_seconds).read if settings.sensors == "fake" else _nothing
        )
        self._looking = threading.Lock()
        self._last = NOT_READ

    def read(self) -> Readings:
        """Look now. Waits for a look that another thread has begun; takes at most 6 seconds."""
        with self._looking:
            self._last = self._look()
            return self._last

    def read_unless_busy(self) -> Readings:
        """Look now, or tell of the last look if another thread is looking: only one waits."""
        if not self._looking.acquire(blocking=False):
            return self._last
        try:
            self._last = self._look()
            return self._last
        finally:
            self._looking.release()

    def last(self) -> Readings:
        """The last look; never waits."""
        return self._last


def _nothing() -> Readings:
    return NOT_READ
