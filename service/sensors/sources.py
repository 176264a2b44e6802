"""Whom to ask for the battery and the skin: one source, or the best of those there are."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Protocol

from service.sensors.power_supply import PowerSupply
from service.sensors.readings import Battery, Reading
from service.sensors.termux import PROGRAM, TermuxBattery

_WITHOUT_A_BATTERY = "on a machine without a battery start with LORAD_SENSORS=fake"


class BatterySource(Protocol):
    """Tells of the battery, for one thread at a time."""

    def read(self) -> Battery:
        """The battery as it is now, or was a minute ago."""
        ...


class SkinSource(Protocol):
    """Tells of the case, for one thread at a time."""

    def read(self) -> Reading[float]:
        """The temperature of the case now; absent if nobody can read it."""
        ...


class NoSkin:
    """Where nothing but the battery is asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Take the time from ``clock``."""
        self._clock = clock

    def read(self) -> Reading[float]:
        """Absent."""
        why = f"only {PROGRAM} is asked, which doesn't tell it"
        return Reading(None, PROGRAM, self._clock(), why, absent=True)


class SysfsBattery:
    """The kernel's battery, or the reason why there is none."""

    def __init__(self, supply: PowerSupply, clock: Callable[[], float]) -> None:
        """Read ``supply``."""
        self._supply = supply
        self._clock = clock

    def read(self) -> Battery:
        """The battery now."""
        battery = self._supply.read()
        if battery is not None:
            return battery
        why = f"{self._supply.folder} has no battery that can be read; {_WITHOUT_A_BATTERY}"
        return Battery.unknown("sysfs", self._clock(), why)


class BestBattery:
    """Termux's word where Termux:API is installed, the kernel's for what that doesn't tell."""

    def __init__(
        self, termux: TermuxBattery, supply: PowerSupply, clock: Callable[[], float]
    ) -> None:
        """Ask both, the first one first."""
        self._termux = termux
        self._supply = supply
        self._clock = clock

    def read(self) -> Battery:
        """The battery; each reading says who told it."""
        if not self._termux.installed:
            return self._supply.read() or self._none()
        battery = self._termux.read()
        silent = [field.name for field in fields(battery) if _is_silent(battery, field.name)]
        other = self._supply.read() if silent else None
        if other is None:
            return battery
        return replace(
            battery,
            **{name: _instead(other, name) for name in silent if not _is_silent(other, name)},
        )

    def _none(self) -> Battery:
        why = (
            f"neither {PROGRAM} is installed nor has {self._supply.folder} a battery that can be "
            "read; on a phone install the app Termux:API and, in Termux, the package termux-api; "
            + _WITHOUT_A_BATTERY
        )
        return Battery.unknown(None, self._clock(), why)


def _is_silent(battery: Battery, name: str) -> bool:
    return getattr(battery, name).value is None


def _instead(battery: Battery, name: str) -> Reading[Any]:
    reading: Reading[Any] = getattr(battery, name)
    return replace(reading, source=f"{reading.source}, as {PROGRAM} doesn't tell it")
