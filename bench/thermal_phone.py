"""A phone that warms up, as two bodies of heat, and its sensors.

                 training, idle             charging
                       │                       │
        ambient ──R── case ─── 2 K/W ─── battery
                      65 % of C          35 % of C

The parameters are chosen, between what is published; none was measured on a phone.

- R, case to ambient, 5 and 8 K/W. Linux's thermal bindings call 2 W the power that a 4 inch phone
  can sustain, and 4.5 W that of a 10 inch tablet; P. Warden's rule for phones is 3 W. At 20 K above
  the room that is 10, 4.4 and 6.7 K/W: a big phone that lies free, and one in a sleeve.
- C, 120 and 220 J/K: 150 and 240 g at 0.8 to 0.9 J/gK (lithium cells: 0.8 to 1.1 J/gK).
- Training takes 4.5 W of heat (a phone's parts together can give 5 to 10 W), an idle phone with its
  screen off 0.2 W, and charging from 80 to 100 % in 90 minutes a loss of 0.25 W in the battery: so
  little that at 38 °C a phone that does nothing stays below the hard limit.
"""

import math
from dataclasses import dataclass

from service.sensors.readings import Reading, Readings, Value

TRAINING_WATTS = 4.5
IDLE_WATTS = 0.2
CHARGING_WATTS = 0.25
CHARGING_SECONDS = 90 * 60
CASE_TO_BATTERY = 2.0  # K/W
BATTERYS_SHARE = 0.35


@dataclass(frozen=True)
class Make:
    """A phone and where it lies."""

    ambient: float
    """In °C."""
    resistance: float
    """Case to ambient, in K/W."""
    capacity: float
    """Of all of it, in J/K."""
    watts: float = TRAINING_WATTS
    """While it trains at full duty."""
    lag_seconds: float = 30.0
    """Of the sensors, first order."""
    quantum: float = 1.0
    """What the sensors' readings are floored to, in K: they say 41 until it is 42."""


class Phone:
    """Its temperatures, from the ambient one on."""

    def __init__(self, make: Make) -> None:
        """Begin as cool as the room."""
        self.make = make
        self.case = self.battery = make.ambient
        self._case_sensor = self._battery_sensor = make.ambient
        self.seconds = 0

    def second(self, duty: float) -> None:
        """One second on, of which this share is trained."""
        make = self.make
        into_battery = (self.case - self.battery) / CASE_TO_BATTERY
        lost = (self.case - make.ambient) / make.resistance
        charging = CHARGING_WATTS if self.seconds < CHARGING_SECONDS else 0.0
        heat = make.watts * duty + IDLE_WATTS - into_battery - lost
        self.case += heat / (make.capacity * (1 - BATTERYS_SHARE))
        self.battery += (into_battery + charging) / (make.capacity * BATTERYS_SHARE)
        self._case_sensor += (self.case - self._case_sensor) / make.lag_seconds
        self._battery_sensor += (self.battery - self._battery_sensor) / make.lag_seconds
        self.seconds += 1

    def readings(self) -> Readings:
        """What the sensors say now; all but the temperatures is well."""
        now = float(self.seconds)

        def says(value: Value) -> Reading[Value]:
            return Reading(value, "simulated", now)

        return Readings(
            plugged=says(True),
            full=says(self.seconds >= CHARGING_SECONDS),
            level=says(90.0),
            battery_temperature=says(self._floored(self._battery_sensor)),
            skin_temperature=says(self._floored(self._case_sensor)),
            storage=says(10**11),
            memory=says(10**10),
        )

    def _floored(self, celsius: float) -> float:
        quantum = self.make.quantum
        return math.floor(celsius / quantum) * quantum if quantum else celsius
