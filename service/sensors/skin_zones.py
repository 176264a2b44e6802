"""The temperature of the case, from the kernel's thermal zones, where apps may read them.

Which zone is the skin's is told by its name alone: it has "skin" in it. Others come close and are
left out, because their limits would be other ones: sys-therm, xo-therm, pa-therm and quiet-therm
sit on the board beside what gets hot, CPU and GPU zones reach 100 °C within seconds and mean
nothing for the hand, and among the zones are voltages and charges too (vbat, socd, …-bcl-lvl0).
Of several skin zones the hottest counts.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service.sensors.quantity import TEMPERATURE
from service.sensors.readings import Reading
from service.sensors.sysfs_file import SysfsError, int_of, text_of

FOLDER = Path("/sys/class/thermal")

_MOST_ZONES = 128
_SEARCH_SECONDS = 900.0
_MISSED_SECONDS = 60.0
_LEAST_MILLIDEGREES = 1000
"""What is nearer to zero is a zone that is switched off, or one that counts in other units."""


@dataclass(frozen=True)
class _Zone:
    folder: Path
    name: str


class SkinZones:
    """Reads the zones of the case. For one thread at a time."""

    def __init__(self, clock: Callable[[], float], folder: Path = FOLDER) -> None:
        """Nothing is read yet."""
        self._clock = clock
        self._folder = folder
        self._zones: list[_Zone] = []
        self._readable = 0
        self._searched_at: float | None = None
        self._answered: set[str] = set()  # since the start
        self._missed = False

    def read(self) -> Reading[float]:
        """The hottest place of the case now.

        Absent, if no zone has ever told a temperature since the start; unknown, if one did that
        is silent now.
        """
        at = self._clock()
        if self._must_search(at):
            self._search()
            self._searched_at = at
        told: dict[str, int] = {}
        for zone in self._zones:
            if (millidegrees := _millidegrees(zone)) is not None:
                told[zone.name] = max(millidegrees, told.get(zone.name, millidegrees))
        self._answered |= told.keys()
        silent = sorted(self._answered - told.keys())
        self._missed = bool(silent)
        if silent:
            why = f"{' and '.join(silent)}: told a temperature before, and tells none now"
            return Reading(None, "sysfs", at, why)
        if not told:
            return Reading(None, "sysfs", at, self._why_absent(), absent=True)
        hottest = max(told, key=lambda name: told[name])
        return Reading(told[hottest] / 1000, f"sysfs {hottest}", at)

    def _must_search(self, at: float) -> bool:
        # Zones come and go with their drivers; a refused file may be a line in the system's log.
        if self._searched_at is None:
            return True
        return at - self._searched_at >= (_MISSED_SECONDS if self._missed else _SEARCH_SECONDS)

    def _search(self) -> None:
        names = []
        for number in range(_MOST_ZONES):  # opened, not listed: some let nobody list the folder
            folder = self._folder / f"thermal_zone{number}"
            with suppress(SysfsError):
                names.append(_Zone(folder, text_of(folder / "type")))
        self._readable = len(names)
        self._zones = [zone for zone in names if "skin" in zone.name.lower()]

    def _why_absent(self) -> str:
        if not self._readable:
            return f"no thermal zone under {self._folder} can be read"
        return (
            f"none of the {self._readable} thermal zones that can be read under {self._folder} "
            "tells the temperature of the case"
        )


def _millidegrees(zone: _Zone) -> int | None:
    # Sentinels such as -273000 and -40960 are out of the range.
    try:
        if text_of(zone.folder / "type") != zone.name:
            return None  # numbered anew
        number = int_of(zone.folder / "temp")
    except SysfsError:
        return None
    is_sane = TEMPERATURE.holds(number, scale=1000) and abs(number) >= _LEAST_MILLIDEGREES
    return number if is_sane else None
