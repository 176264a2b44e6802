"""Pacing: the warmer battery and case, the smaller the share of the time that a worker works.

    duty                                  `soft`   from here on less than all of the time
    1.0 ────────╮                         `pause`  here the gate closes
                 ╲                        The last quarter before it is worked at the least duty,
    least         ╰────────────┤          because a sensor that tells whole degrees says 41 as
             soft            pause        long as it isn't 42.

What counts is not the last reading but where the temperature will be two minutes after it if it
goes on rising: the next reading is a minute away, and a sensor lags behind. Without that a phone
that warms quickly is past `pause` before anything was slowed (`bench/thermal.py`).
"""

import math
from dataclasses import dataclass

from service.gates.limits import Limits
from service.sensors.readings import Reading, Readings

AHEAD_SECONDS = 120.0
_LEAST_APART_SECONDS = 30.0
"""Between two readings that tell a trend; with whole degrees nearer ones would tell a leap."""


@dataclass(frozen=True)
class _Told:
    celsius: float
    at: float


class _Trend:
    """Where one temperature goes."""

    def __init__(self, most_age: float) -> None:
        """Readings that are farther apart than ``most_age`` seconds tell no trend."""
        self._most_age = most_age
        self._before: _Told | None = None
        self._last: _Told | None = None

    def expected(self, reading: Reading[float]) -> float | None:
        """In °C, never below the reading; None where it isn't known."""
        if reading.value is None or reading.at is None or not math.isfinite(reading.value):
            return None
        told = _Told(reading.value, reading.at)
        if self._last is None or told.at - self._last.at >= _LEAST_APART_SECONDS:
            self._before, self._last = self._last, told
        elif told.at < self._last.at:  # another clock than before
            self._before, self._last = None, told
        if self._before is None or told.at - self._before.at > self._most_age:
            return told.celsius
        rise = (told.celsius - self._before.celsius) / (told.at - self._before.at)
        return told.celsius + max(0.0, rise) * AHEAD_SECONDS


class Pacer:
    """Tells the duty. From one thread at a time."""

    def __init__(self, limits: Limits) -> None:
        """By the temperatures of ``limits``."""
        self._limits = limits
        self._battery = _Trend(limits.most_age_seconds)
        self._skin = _Trend(limits.most_age_seconds)

    def duty(self, readings: Readings) -> float:
        """The share of the time that a worker may work, from the least duty to 1.

        The warmer of battery and case decides, each by its own limits. Where one isn't known it is
        the least: the gate closes for that, and until it does nothing may heat. A case's sensor
        that there is not has no say.
        """
        limits = self._limits
        battery = _share(
            self._battery.expected(readings.battery_temperature),
            limits.battery_temperature_soft,
            limits.battery_temperature_pause,
            limits.duty_least,
        )
        if readings.skin_temperature.absent:
            return battery
        skin = _share(
            self._skin.expected(readings.skin_temperature),
            limits.skin_temperature_soft,
            limits.skin_temperature_pause,
            limits.duty_least,
        )
        return min(battery, skin)


def _share(celsius: float | None, soft: float, pause: float, least: float) -> float:
    if celsius is None:
        return least
    way = (celsius - soft) / (0.75 * (pause - soft))
    return min(1.0, max(least, 1 - (1 - least) * way))
