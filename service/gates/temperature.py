"""The gates of temperature: the battery's and the case's."""

from abc import abstractmethod
from dataclasses import dataclass

from service.gates.gate import Finding, Gate
from service.gates.limits import Limits
from service.gates.verdict import GateName, GateVerdict
from service.sensors.readings import Reading, Readings

_OWN_HEAT_SECONDS = 3600.0


@dataclass(frozen=True)
class Marks:
    """In °C, of one gate."""

    start: float
    resume: float
    pause: float
    hard: float


class Temperature(Gate[float]):
    """Opens at ``start`` or cooler, and closes at ``pause`` while something trains.

    For an hour after something has trained through it, it opens at ``resume`` already: the heat is
    training's own, and goes. At ``hard`` or warmer nobody passes.
    """

    unit = "°C"
    plausible = (-30, 100)
    bearer: str

    def __init__(self, limits: Limits) -> None:
        """See `Gate`."""
        super().__init__(limits)
        self._marks = self.marks(limits)
        self._trained_at: float | None = None

    @staticmethod
    @abstractmethod
    def marks(limits: Limits) -> Marks:
        """Those of the limits that are this gate's."""

    def judge(self, value: float, readings: Readings, now: float, *, holding: bool) -> Finding:
        """Below ``hard`` can be passed."""
        marks = self._marks
        if holding:
            self._trained_at = now
        limit, opens = self.to_open(now)
        good = value < marks.pause if holding else value <= limit
        found = f"{self.bearer} has {value:.4g} °C"
        if value >= marks.hard:
            limit = marks.hard
            found += f", at or above the hard limit of {limit:g} °C"
        elif holding:
            limit = marks.pause
            if not good:
                found += f", at or above the pause limit of {limit:g} °C"
        return Finding(good, limit, found, opens, passable=value < marks.hard)

    def to_open(self, now: float) -> tuple[float, str]:
        """``resume`` for heat of our own, else ``start``."""
        if self._trained_at is not None and now - self._trained_at <= _OWN_HEAT_SECONDS:
            return self._marks.resume, f"training goes on at {self._marks.resume:g} °C or cooler"
        return self._marks.start, f"training starts at {self._marks.start:g} °C or cooler"


class BatteryTemperature(Temperature):
    """The battery's, which every phone tells."""

    name: GateName = "battery_temperature"
    subject = "the battery's temperature"
    bearer = "the battery"

    @staticmethod
    def marks(limits: Limits) -> Marks:
        """The battery's."""
        return Marks(
            limits.battery_temperature_start,
            limits.battery_temperature_resume,
            limits.battery_temperature_pause,
            limits.battery_temperature_hard,
        )

    def reading_of(self, readings: Readings) -> Reading[float]:
        """The battery's."""
        return readings.battery_temperature


class SkinTemperature(Temperature):
    """The case's, which most phones keep to themselves.

    A sensor that there is not is no reason not to train. One that was once read and can't be any
    more is silent, not absent.
    """

    name: GateName = "skin_temperature"
    subject = "the case's temperature"
    bearer = "the case"

    def __init__(self, limits: Limits) -> None:
        """See `Gate`."""
        super().__init__(limits)
        self._was_read = False

    @staticmethod
    def marks(limits: Limits) -> Marks:
        """The case's."""
        return Marks(
            limits.skin_temperature_start,
            limits.skin_temperature_resume,
            limits.skin_temperature_pause,
            limits.skin_temperature_hard,
        )

    def reading_of(self, readings: Readings) -> Reading[float]:
        """The case's."""
        return readings.skin_temperature

    def judge(self, value: float, readings: Readings, now: float, *, holding: bool) -> Finding:
        """As for the battery."""
        self._was_read = True
        return super().judge(value, readings, now, holding=holding)

    def update(self, readings: Readings, now: float, *, training: bool) -> GateVerdict:
        """Open where there is no sensor, as the battery's temperature is the one that decides."""
        reading = readings.skin_temperature
        if not reading.absent or reading.value is not None or self._was_read:
            return super().update(readings, now, training=training)
        self._open.update(True, now)
        self._passable.update(True, now)
        finding = Finding(
            good=True,
            limit=self._marks.start,
            found="this device has no sensor of the case's temperature that can be read "
            f"({reading.why or 'none was found'}): the battery's temperature decides",
            opens="",
        )
        return self._verdict(None, None, None, self._reason(finding, now))
