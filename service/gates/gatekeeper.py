"""The gatekeeper: all gates at one look, and whether they let anything train."""

from collections.abc import Callable, Sequence

from api_schemas.gates import Gate as GateAnswer
from service.boot_clock import boot_seconds
from service.gates.charging import Charging
from service.gates.gate import Gate
from service.gates.level import Level
from service.gates.limits import Limits
from service.gates.refusal import refusal
from service.gates.room import Memory, Storage
from service.gates.temperature import BatteryTemperature, SkinTemperature
from service.gates.verdict import GateVerdict
from service.sensors.readings import Readings


class Gatekeeper:
    """Keeps the state of all gates. One thread updates it; any may ask."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = boot_seconds) -> None:
        """All gates are closed until the first update.

        ``clock`` tells `refusal` how old the last update is.
        """
        self.limits = limits
        self._clock = clock
        self._gates: tuple[Gate[bool] | Gate[int] | Gate[float], ...] = (
            Charging(limits),
            Level(limits),
            BatteryTemperature(limits),
            SkinTemperature(limits),
            Storage(limits),
            Memory(limits),
        )
        self._looked_at: float | None = None
        self.verdicts: tuple[GateVerdict, ...] = tuple(gate.not_yet() for gate in self._gates)
        """Those of the last update, in the order of `service.gates.verdict.GATES`."""

    def update(self, readings: Readings, now: float, *, training: bool) -> tuple[GateVerdict, ...]:
        """The verdicts on these readings.

        Args:
            readings: the last ones.
            now: `boot_seconds` after the reading: one from the future is taken for clock trouble.
            training: whether a worker trains now, for which the limits that stop one apply.
        """
        self.verdicts = tuple(gate.update(readings, now, training=training) for gate in self._gates)
        self._looked_at = now
        return self.verdicts

    def refusal(self, override: bool) -> str | None:
        """Why nothing may train, most important first, in one sentence; None: something may.

        ``override`` passes the closed gates that are overridable.
        """
        looked_at = self._looked_at
        if looked_at is None:
            return "no sensor has been read yet, and training waits for that"
        age = self._clock() - looked_at
        if age > self.limits.most_age_seconds:  # after a suspend, before the next tick
            return (
                f"the sensors were last read {age:.0f} s ago, and training waits for new readings"
            )
        return refusal(self.verdicts, override=override)


def gate_answers(verdicts: Sequence[GateVerdict]) -> list[GateAnswer]:
    """The verdicts as the API tells them."""
    return [
        GateAnswer(
            name=verdict.name,
            open=verdict.open,
            reading=verdict.reading,
            limit=verdict.limit,
            unit=verdict.unit,
            age_seconds=None if verdict.age_seconds is None else round(verdict.age_seconds, 1),
            reason=verdict.reason,
            overridable=verdict.overridable,
        )
        for verdict in verdicts
    ]
