"""The sensors of this device, by the source that the settings name."""

import threading
from collections.abc import Callable

from service.boot_clock import boot_seconds
from service.home import Home
from service.sensors import room
from service.sensors.fake import FakeSensors
from service.sensors.power_supply import PowerSupply
from service.sensors.readings import NOT_READ, Readings
from service.sensors.skin_zones import SkinZones
from service.sensors.sources import (
    BatterySource,
    BestBattery,
    NoSkin,
    SkinSource,
    SysfsBattery,
)
from service.sensors.termux import TermuxBattery
from service.settings import Settings


class Sensors:
    """Reads them one look at a time, from any thread, and remembers the last look."""

    def __init__(self, settings: Settings, home: Home) -> None:
        """Choose the sources; nothing is read yet."""
        self._look = _look(settings, home, boot_seconds)
        self._looking = threading.Lock()
        self._last = NOT_READ

    def read(self) -> Readings:
        """Look now. Waits for a look that another thread has begun; takes at most 12 seconds."""
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


def _look(settings: Settings, home: Home, clock: Callable[[], float]) -> Callable[[], Readings]:
    if settings.sensors == "fake":
        return FakeSensors(home, clock).read
    battery: BatterySource
    skin: SkinSource = SkinZones(clock)
    match settings.sensors:
        case "termux":
            battery, skin = TermuxBattery(clock), NoSkin(clock)
        case "sysfs":
            battery = SysfsBattery(PowerSupply(clock), clock)
        case "auto":
            battery = BestBattery(TermuxBattery(clock), PowerSupply(clock), clock)

    def look() -> Readings:
        return Readings(
            **vars(battery.read()),
            skin_temperature=skin.read(),
            storage=room.storage(home.path, clock()),
            memory=room.memory(clock()),
        )

    return look
