"""The gate of the charger."""

from service.gates.gate import Finding, Gate
from service.gates.verdict import GateName
from service.sensors.readings import Reading, Readings


class Charging(Gate[bool]):
    """Open while a charger is connected, whether the battery still takes something or is full."""

    name: GateName = "charging"
    unit = None
    subject = "whether a charger is connected"
    plausible = (False, True)

    def reading_of(self, readings: Readings) -> Reading[bool]:
        """Whether a charger is connected."""
        return readings.plugged

    def judge(self, value: bool, readings: Readings, now: float, *, holding: bool) -> Finding:
        """Connected is good; not connected can be passed."""
        limit, opens = self.to_open(now)
        found = "a charger is connected" if value else "no charger is connected"
        return Finding(value, limit, found, opens, passable=True)

    def to_open(self, now: float) -> tuple[bool, str]:
        """A charger."""
        return True, "training needs one"
