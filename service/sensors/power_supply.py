"""The battery and the chargers as the kernel shows them, on devices that let apps look."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from service.sensors.battery_status import is_full
from service.sensors.quantity import LEVEL, TEMPERATURE
from service.sensors.readings import Battery, Reading
from service.sensors.sysfs_file import MissingFileError, SysfsError, int_of, text_of

FOLDER = Path("/sys/class/power_supply")

_USUAL_NAMES = ("battery", "BAT0", "BAT1", "usb", "ac", "AC", "wireless", "dc", "dock")
"""Tried where the folder can't be listed: its files may be readable all the same."""
_NO_CHARGERS = {"Battery", "BMS", "UPS"}
_CHARGE_STATES = {
    "Charging": "CHARGING",
    "Discharging": "DISCHARGING",
    "Not charging": "NOT_CHARGING",
    "Full": "FULL",
}
_HEALTH = {
    "Overheat": "OVERHEAT",
    "Cold": "COLD",
    "Dead": "DEAD",
    "Over voltage": "OVER_VOLTAGE",
    "Unspecified failure": "UNSPECIFIED_FAILURE",
}


class PowerSupply:
    """Reads ``/sys/class/power_supply``."""

    def __init__(self, clock: Callable[[], float], folder: Path = FOLDER) -> None:
        """Nothing is read yet."""
        self._clock = clock
        self.folder = folder

    def read(self) -> Battery | None:
        """The battery now, or None if there is none that tells its level or its state."""
        at = self._clock()
        supplies = list(self._supplies())
        for supply in supplies:
            if _is_battery(supply):
                return self._battery(supply, supplies, at)
        return None

    def _supplies(self) -> Iterator[Path]:
        try:
            names = sorted(entry.name for entry in self.folder.iterdir())
        except OSError:
            names = list(_USUAL_NAMES)
        for name in names:
            yield self.folder / name

    def _battery(self, battery: Path, supplies: list[Path], at: float) -> Battery:
        state = _of(text_of, battery / "status")
        plugged = self._plugged(supplies, state, f"sysfs {battery.name}/status", at)
        return Battery(
            plugged=plugged,
            full=_full(battery, state, plugged, at),
            level=_level(battery, at),
            battery_temperature=_temperature(battery, at),
        )

    def _plugged(
        self, supplies: list[Path], state: str | None, state_source: str, at: float
    ) -> Reading[bool]:
        online = {
            supply.name: value > 0
            for supply in supplies
            if _of(text_of, supply / "type") not in _NO_CHARGERS
            and (value := _of(int_of, supply / "online")) is not None
        }
        for name, is_on in online.items():
            if is_on:
                return Reading(True, f"sysfs {name}/online", at)
        if state == "Charging":  # by a charger that can't be read
            return Reading(True, state_source, at)
        if online:
            return Reading(False, f"sysfs {next(iter(online))}/online", at)
        if state == "Discharging":
            return Reading(False, state_source, at)
        why = f"no charger under {self.folder} tells whether it is connected"
        return Reading(None, "sysfs", at, why)


def _is_battery(supply: Path) -> bool:
    # The battery of a mouse or a pen is one too, of the scope "Device".
    return (
        _of(text_of, supply / "type") == "Battery"
        and _of(text_of, supply / "scope") != "Device"
        and _of(text_of, supply / "present") != "0"
        and any(_of(text_of, supply / name) is not None for name in ("capacity", "status"))
    )


def _full(battery: Path, state: str | None, plugged: Reading[bool], at: float) -> Reading[bool]:
    source = f"sysfs {battery.name}/status"
    if state is None or state not in _CHARGE_STATES:
        found = "none that can be read" if state is None else repr(state[:40])
        expected = f"{battery / 'status'}: expected one of {', '.join(_CHARGE_STATES)}"
        return Reading(None, source, at, f"{expected}; found {found}")
    health = _HEALTH.get(_of(text_of, battery / "health") or "")
    full = is_full(_CHARGE_STATES[state], plugged.value, health)
    return Reading(full, source, at, plugged.why if full is None else None)


def _level(battery: Path, at: float) -> Reading[float]:
    source = f"sysfs {battery.name}/capacity"
    try:
        return LEVEL.reading(int_of(battery / "capacity"), source, at)
    except SysfsError as error:
        return Reading(None, source, at, str(error))


def _temperature(battery: Path, at: float) -> Reading[float]:
    source = f"sysfs {battery.name}/temp"
    try:
        return TEMPERATURE.reading(int_of(battery / "temp"), source, at, scale=10)
    except MissingFileError:
        why = (
            f"the battery {battery.name} tells no temperature, and nothing trains without one; "
            "LORAD_SENSORS=fake trains on such a machine, asking no sensor"
        )
    except SysfsError as error:
        why = str(error)
    return Reading(None, source, at, why)


def _of(read: Callable[[Path], Any], file: Path) -> Any:
    try:
        return read(file)
    except SysfsError:
        return None
