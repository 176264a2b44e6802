"""One gate: what its reading means, and what it meant before.

                     good reading, and the cool-down is over
        ┌────────┐ ─────────────────────────────────────────▶ ┌──────┐
        │ closed │                                            │ open │
        └────────┘ ◀───────────────────────────────────────── └──────┘
                     reading beyond the limit, or unknown

"Good" is stricter for a closed gate (``start``, ``resume``) than for an open one while something
trains (``floor``, ``pause``): that is the hysteresis. What is unknown is never good, so that after
a bad reading only a good one opens, and silence never does.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic

from service.gates.doubt import doubt
from service.gates.latch import Latch
from service.gates.limits import Limits
from service.gates.verdict import GateName, GateVerdict, Unknown
from service.sensors.readings import Reading, Readings, Value


@dataclass(frozen=True)
class Finding:
    """What a reading means by itself, whatever was before it."""

    good: bool
    limit: float | bool
    found: str
    """The reading in words."""
    opens: str
    """What opens the gate, in words."""
    passable: bool = False
    """Good enough for ``train:override``."""


class Gate(ABC, Generic[Value]):
    """A condition for training. From one thread at a time."""

    name: GateName
    unit: str | None
    subject: str
    plausible: tuple[float, float]
    """The least and the greatest value that a reading can have."""

    def __init__(self, limits: Limits) -> None:
        """Closed until the first good reading."""
        self._limits = limits
        self._open = Latch(limits.cool_down_seconds)
        self._passable = Latch(limits.cool_down_seconds)

    @abstractmethod
    def reading_of(self, readings: Readings) -> Reading[Value]:
        """The reading that decides."""

    @abstractmethod
    def judge(self, value: Value, readings: Readings, now: float, *, holding: bool) -> Finding:
        """What a reading that can be relied on means.

        ``holding``: the gate is open and something trains, so that the laxer limits apply.
        """

    @abstractmethod
    def to_open(self, now: float) -> tuple[float | bool, str]:
        """The limit that a closed gate has now, and in words what opens it."""

    def update(self, readings: Readings, now: float, *, training: bool) -> GateVerdict:
        """The verdict on these readings at the moment ``now`` of `boot_seconds`."""
        reading = self.reading_of(readings)
        why = self.doubt(reading, now)
        if why is not None:
            self._open.update(False, now)
            self._passable.update(False, now)
            value = reading.value if self.is_plausible(reading.value) else None
            return self._unknown(value, reading.age(now), why, now)
        assert reading.value is not None  # else there is doubt
        holding = training and self._open.open
        finding = self.judge(reading.value, readings, now, holding=holding)
        self._open.update(finding.good, now)
        self._passable.update(finding.passable, now)
        return self._verdict(
            reading.value, finding.limit, reading.age(now), self._reason(finding, now)
        )

    def doubt(self, reading: Reading[Value], now: float) -> str | None:
        """Why the reading can't be relied on."""
        return doubt(reading, now, self._limits.most_age_seconds, self.plausible)

    def not_yet(self) -> GateVerdict:
        """The verdict before there was any reading."""
        return self._unknown(None, None, "no sensor has been read yet", now=0.0)

    def is_plausible(self, value: Value | None) -> bool:
        """Whether it is a value that there can be."""
        least, most = self.plausible
        return value is not None and least <= value <= most

    def _unknown(self, value: Value | None, age: float | None, why: str, now: float) -> GateVerdict:
        limit, opens = self.to_open(now)
        reason = f"{self.subject} is not known: {why}, and {opens}"
        return self._verdict(value, limit, age, reason, Unknown(self.subject, why))

    def _reason(self, finding: Finding, now: float) -> str:
        if self._open.open:
            return finding.found
        if not finding.good:
            return f"{finding.found}, and {finding.opens}"
        whole, left = self._limits.cool_down_seconds, self._open.wait(now)
        return (
            f"{finding.found}, but the gate closed a short while ago: it stays so for {whole:g} s, "
            f"{left:.0f} s more"
        )

    def _verdict(
        self,
        value: float | bool | None,
        limit: float | bool | None,
        age: float | None,
        reason: str,
        unknown: Unknown | None = None,
    ) -> GateVerdict:
        return GateVerdict(
            name=self.name,
            open=self._open.open,
            reading=value,
            limit=limit,
            unit=self.unit,
            age_seconds=age,
            reason=reason,
            overridable=self._passable.open and not self._open.open,
            unknown=unknown,
        )
