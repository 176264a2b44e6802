"""What a sensor can measure: a number out of its range is an error of the sensor's, not a value."""

from dataclasses import dataclass
from typing import Any

from service.sensors.readings import Reading

_LONGEST_QUOTE = 40


@dataclass(frozen=True)
class Quantity:
    """A kind of number with its range, ends included."""

    lowest: float
    highest: float
    unit: str

    def holds(self, number: object, scale: int = 1) -> bool:
        """Whether this is a number in the range, given in ``scale``-ths of the unit."""
        return (
            isinstance(number, int | float)
            and not isinstance(number, bool)
            and self.lowest * scale <= number <= self.highest * scale  # never true of NaN
        )

    def reading(self, number: Any, source: str, at: float, scale: int = 1) -> Reading[float]:
        """A reading of a number, given in ``scale``-ths of the unit; unknown if it can't be one."""
        if self.holds(number, scale):
            return Reading(round(number / scale, 3), source, at)  # some give 29.399999618530273
        unit = self.unit if scale == 1 else f"(in 1/{scale} {self.unit})"
        expected = f"{self.lowest * scale:g} to {self.highest * scale:g} {unit}"
        return Reading(None, source, at, f"expected {expected}, found {quoted(number)}")


LEVEL = Quantity(0, 100, "%")
TEMPERATURE = Quantity(-30, 100, "°C")
"""Of a battery or a case. A thermistor with a broken wire says -40, and is left out by this."""


def quoted(value: object) -> str:
    """The value as a sensor gave it, short enough for a sentence."""
    text = str(value) if isinstance(value, int | float) else repr(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
