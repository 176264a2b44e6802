"""What `termux-battery-status` prints, in the formats of all versions of Termux:API.

- up to 0.50: health, percentage, plugged, status, temperature, current.
- 0.51: more keys; ``temperature`` is text with the decimal separator of the phone's language;
  what isn't known is null.
- 0.52 and later: ``temperature`` is a number again; what isn't known is left out, or, before the
  first broadcast of the battery, is -1, ``PLUGGED_-1`` and the like.

``current`` is left unread: its sign and unit are the vendor's whim.
"""

import json
import re
from typing import Any, TypeGuard

from service.sensors.quantity import LEVEL, TEMPERATURE, quoted
from service.sensors.readings import Battery, Reading

_SOURCES = {"PLUGGED_AC", "PLUGGED_USB", "PLUGGED_WIRELESS", "PLUGGED_DOCK"}
_MANY_SOURCES = re.compile(r"PLUGGED_[1-9][0-9]{0,3}")  # a bit mask, if there are several
_TEMPERATURE = re.compile(r"(-?\d{1,4})(?:[.,\u066b](\d{1,20}))?")  # \u066b: the Arabic separator
_CHARGE_STATES = {"CHARGING", "DISCHARGING", "FULL", "NOT_CHARGING"}
_STOPS_CHARGING = ("OVERHEAT", "COLD", "DEAD", "OVER_VOLTAGE", "UNSPECIFIED_FAILURE")


class BatteryStatusError(ValueError):
    """What was printed is no battery's status; the message says what it is, after "it printed"."""


def parse(printed: bytes, source: str, at: float) -> Battery:
    """The battery's readings; each is unknown with its own reason where it has no sane value.

    Raises:
        BatteryStatusError: this isn't an object in JSON.
    """
    if not printed.strip():
        raise BatteryStatusError("nothing")
    try:
        status = json.loads(printed)
    except (ValueError, RecursionError):
        raise BatteryStatusError("something that isn't JSON, or is cut off") from None
    if not isinstance(status, dict):
        raise BatteryStatusError("JSON that isn't an object")
    if status.get("present") is False:
        return Battery.unknown(source, at, "the system knows of no battery (present: false)")
    plugged = _plugged(status, source, at)
    return Battery(
        plugged=plugged,
        full=_full(status, plugged, source, at),
        level=_level(status, source, at),
        battery_temperature=_temperature(status, source, at),
    )


def is_full(charge_state: str, plugged: bool | None, health: object) -> bool | None:
    """Whether the battery takes no more; None if that isn't known.

    A charger that is connected and doesn't charge holds the battery at its user's limit, unless
    the battery is too hot, too cold or broken to be charged.
    """
    if charge_state != "NOT_CHARGING":
        return charge_state == "FULL"
    return None if plugged is None else plugged and health not in _STOPS_CHARGING


def _plugged(status: dict[str, Any], source: str, at: float) -> Reading[bool]:
    plugged = status.get("plugged")
    if plugged == "UNPLUGGED":
        return Reading(False, source, at)
    if isinstance(plugged, str) and (plugged in _SOURCES or _MANY_SOURCES.fullmatch(plugged)):
        return Reading(True, source, at)
    return _unknown("plugged", "UNPLUGGED or PLUGGED_ and a charger", plugged, source, at)


def _full(status: dict[str, Any], plugged: Reading[bool], source: str, at: float) -> Reading[bool]:
    state = status.get("status")
    if not isinstance(state, str) or state not in _CHARGE_STATES:
        expected = "CHARGING, DISCHARGING, FULL or NOT_CHARGING"
        return _unknown("status", expected, state, source, at)
    full = is_full(state, plugged.value, status.get("health"))
    return Reading(full, source, at, plugged.why if full is None else None)


def _level(status: dict[str, Any], source: str, at: float) -> Reading[float]:
    percentage = status.get("percentage")
    if percentage is not None:
        return LEVEL.reading(percentage, source, at)
    level, scale = status.get("level"), status.get("scale")
    if not _is_int(level) or not _is_int(scale):
        return Reading(None, source, at, "it tells neither percentage nor level and scale")
    if not 0 <= level <= scale or scale == 0:
        expected = f"a level from 0 to its scale, found {quoted(level)} of {quoted(scale)}"
        return Reading(None, source, at, f"expected {expected}")
    return Reading(100 * level / scale, source, at)


def _temperature(status: dict[str, Any], source: str, at: float) -> Reading[float]:
    temperature = status.get("temperature")
    if temperature is None:
        return Reading(None, source, at, "it tells no temperature")
    if isinstance(temperature, str) and (text := _TEMPERATURE.fullmatch(temperature)):
        temperature = float(f"{text[1]}.{text[2] or 0}")
    return TEMPERATURE.reading(temperature, source, at)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _unknown(name: str, expected: str, found: object, source: str, at: float) -> Reading[bool]:
    told = "none" if found is None else quoted(found)
    return Reading(None, source, at, f"{name}: expected {expected}, found {told}")
