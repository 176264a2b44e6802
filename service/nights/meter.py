"""How long a run has been trained between two looks, on a clock that suspend doesn't stop."""

from dataclasses import dataclass


@dataclass(frozen=True)
class InTraining:
    """A run that is being trained in a window, on account of a night."""

    run_id: int
    adapter_id: int
    night_id: int


@dataclass(frozen=True)
class Charge:
    """Seconds of training that an adapter owes a night."""

    night_id: int
    adapter_id: int
    seconds: float


class Meter:
    """Reads the time at every look.

    A run that is new at a look counts as trained since the look before; one that began and ended
    between two looks is not seen.
    """

    def __init__(self) -> None:
        """Begin without knowing what was trained before."""
        self._last: float | None = None
        self._seen: InTraining | None = None

    @property
    def seen(self) -> InTraining | None:
        """The run of the last look."""
        return self._seen

    def read(
        self, boot: float, now: int, training: InTraining | None, ended: int | None
    ) -> list[Charge]:
        """What has been used since the last look, which a set wall clock can't make more.

        Args:
            boot: `boot_seconds` now.
            now: the wall clock, in milliseconds since 1970 UTC.
            training: what is being trained now.
            ended: when the run `seen` was last at work, if it isn't any more.
        """
        elapsed = 0.0 if self._last is None else max(0.0, boot - self._last)
        before, self._last, self._seen = self._seen, boot, training
        if before is not None and training is not None and before.run_id == training.run_id:
            return _charges(before, elapsed)
        charges = []
        if before is not None:
            idle = 0.0 if ended is None else min(max((now - ended) / 1000, 0.0), elapsed)
            charges += _charges(before, elapsed - idle)
        if training is not None:
            charges += _charges(training, elapsed)
        return charges


def _charges(training: InTraining, seconds: float) -> list[Charge]:
    return [Charge(training.night_id, training.adapter_id, seconds)] if seconds > 0 else []
