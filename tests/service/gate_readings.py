"""Readings of a phone on which all is well, but for what a test says."""

from typing import Any

from service.sensors.readings import Reading, Readings

MIB = 1024 * 1024

WELL: dict[str, Any] = {
    "plugged": True,
    "full": False,
    "level": 90.0,
    "battery_temperature": 30.0,
    "skin_temperature": 32.0,
    "storage": 4096 * MIB,
    "memory": 3072 * MIB,
}


def readings(at: float, **changes: Any) -> Readings:
    """Taken at ``at``; None stands for a sensor that is silent, a `Reading` for itself."""
    return Readings(
        **{
            name: value
            if isinstance(value, Reading)
            else Reading(value, "a test", at, None if value is not None else "no answer in 5 s")
            for name, value in (WELL | changes).items()
        }
    )
