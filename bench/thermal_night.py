"""A night of a simulated phone under one way to keep it cool.

The ways ask the gates of the daemon themselves (`service.gates`), every half minute as the
conductor does, on readings that are taken once a minute.
"""

from dataclasses import dataclass, field

from bench.thermal_phone import Make, Phone
from service.gates.gatekeeper import Gatekeeper
from service.gates.limits import Limits
from service.gates.pacing import Pacer
from service.sensors.readings import Readings

LIMITS = Limits()
ON_OFF_LIMITS = Limits(battery_temperature_pause=40)
"""The gates alone: they pause at 40 °C and go on at 37 °C, the warmest whole degrees with which
they keep every phone of the grid below the hard limit."""
HARD = LIMITS.battery_temperature_hard

READ_SECONDS = 60
LOOK_SECONDS = 30
NIGHT_HOURS = 8.0


class Gated:
    """The gates, with or without pacing."""

    def __init__(self, limits: Limits, *, paced: bool) -> None:
        """Keep to these limits."""
        self._keeper = Gatekeeper(limits, clock=lambda: self._now)
        self._pacer = Pacer(limits) if paced else None
        self._now = 0.0

    def duty(self, readings: Readings, now: float, training: bool) -> float:
        """What is allowed from now on; 0: nothing trains."""
        self._now = now
        self._keeper.update(readings, now, training=training)
        if self._keeper.refusal(override=False) is not None:
            return 0.0
        return 1.0 if self._pacer is None else self._pacer.duty(readings)


class Fixed:
    """Ten minutes on and two off, and off while the hard limits say so."""

    def duty(self, readings: Readings, now: float, training: bool) -> float:
        """See `Gated.duty`."""
        battery, skin = readings.battery_temperature.value, readings.skin_temperature.value
        assert battery is not None
        assert skin is not None
        cool = battery < HARD and skin < LIMITS.skin_temperature_hard
        return 1.0 if cool and now % 720 < 600 else 0.0


Way = Gated | Fixed


def ways() -> dict[str, Way]:
    """Every way, at the start of a night."""
    return {
        "ours": Gated(LIMITS, paced=True),
        "on_off": Gated(ON_OFF_LIMITS, paced=False),
        "on_off_at_our_limits": Gated(LIMITS, paced=False),
        "fixed": Fixed(),
    }


@dataclass
class Night:
    """What became of it. Temperatures are the true ones, in °C."""

    hours: float
    hottest: float = 0.0
    hottest_case: float = 0.0
    mean: float = 0.0
    seconds_above_hard: int = 0
    """That the battery was warmer than its hard limit."""
    steps: float = 0.0
    """Of a second each."""
    pauses: int = 0
    """How often what trained was stopped."""
    trace: list[tuple[float, float, float, float]] = field(default_factory=list)
    """Every minute: hour, battery, case, duty."""

    @property
    def steps_per_hour(self) -> float:
        """On average."""
        return self.steps / self.hours


def spend(make: Make, way: Way, hours: float = NIGHT_HOURS) -> Night:
    """A night of this phone."""
    phone, night, duty = Phone(make), Night(hours), 0.0
    readings = phone.readings()
    seconds = int(hours * 3600)
    for second in range(seconds):
        if second % READ_SECONDS == 0:
            readings = phone.readings()
            night.trace.append((second / 3600, phone.battery, phone.case, duty))
        if second % LOOK_SECONDS == 0:
            before, duty = duty, way.duty(readings, float(second), duty > 0)
            night.pauses += before > 0 and duty == 0
        phone.second(duty)
        night.steps += duty
        night.mean += phone.battery / seconds
        night.seconds_above_hard += phone.battery > HARD
        if phone.battery > night.hottest:
            night.hottest = phone.battery
        if phone.case > night.hottest_case:
            night.hottest_case = phone.case
    return night
