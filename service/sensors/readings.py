"""What sensors say: a value with its source and age, or why there is none."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Value = TypeVar("Value", bool, int, float)


@dataclass(frozen=True)
class Reading(Generic[Value]):
    """One sensor's last word.

    ``at`` is `boot_seconds` of the moment it was asked for; None if it never was. ``absent`` says
    that this device has no such sensor that can be read, which is another thing than one that is
    silent.
    """

    value: Value | None
    source: str | None
    at: float | None
    why: str | None = None
    absent: bool = False

    def age(self, now: float) -> float | None:
        """Seconds from the reading to ``now``, on the same clock."""
        return None if self.at is None else now - self.at


@dataclass(frozen=True)
class Battery:
    """What is told of the battery."""

    plugged: Reading[bool]
    """Whether a charger is connected, whatever the battery makes of it."""
    full: Reading[bool]
    """Whether the battery takes no more: full, or held at the charge limit its user set."""
    level: Reading[float]
    """Charge in percent."""
    battery_temperature: Reading[float]
    """In °C."""

    @classmethod
    def unknown(cls, source: str | None, at: float, why: str) -> "Battery":
        """A battery of which nothing is known, for one reason."""
        silent: Reading[Any] = Reading(None, source, at, why)
        return cls(silent, silent, silent, silent)


@dataclass(frozen=True)
class Readings(Battery):
    """All sensors at one look."""

    skin_temperature: Reading[float]
    """Of the case, in °C."""
    storage: Reading[int]
    """Bytes free on the file system of the home."""
    memory: Reading[int]
    """Bytes that can be had without swapping."""


_NOT_YET: Reading[Any] = Reading(None, None, None, "no sensor has been read yet")
NOT_READ = Readings(_NOT_YET, _NOT_YET, _NOT_YET, _NOT_YET, _NOT_YET, _NOT_YET, _NOT_YET)
"""What is known before the first look."""
