"""The gate of the battery's charge."""

from service.gates.doubt import doubt
from service.gates.gate import Finding, Gate
from service.gates.verdict import GateName
from service.sensors.readings import Reading, Readings


class Level(Gate[float]):
    """Opens with a battery that is charged enough or full; nothing trains below the floor."""

    name: GateName = "level"
    unit = "%"
    subject = "the battery's charge"
    plausible = (0, 100)

    def reading_of(self, readings: Readings) -> Reading[float]:
        """The charge in percent."""
        return readings.level

    def judge(self, value: float, readings: Readings, now: float, *, holding: bool) -> Finding:
        """At or above the floor can be passed, and is good while something trains."""
        limits = self._limits
        above_floor = value >= limits.level_floor
        enough = holding or value >= limits.level_start or self._full(readings, now)
        limit, opens = self.to_open(now)
        found = f"the battery's charge is {value:.4g} %"
        if not above_floor:
            limit = limits.level_floor
            found += f", below the floor of {limit:g} %"
        elif holding:
            limit = limits.level_floor
        elif value < limits.level_start and enough:
            found += " and it takes no more"
        return Finding(above_floor and enough, limit, found, opens, passable=above_floor)

    def to_open(self, now: float) -> tuple[float, str]:
        """The charge to start with."""
        start = self._limits.level_start
        return start, f"training starts from {start:g} % or with a full battery"

    def _full(self, readings: Readings, now: float) -> bool:
        full = readings.full
        return bool(full.value) and (
            doubt(full, now, self._limits.most_age_seconds, (False, True)) is None
        )
