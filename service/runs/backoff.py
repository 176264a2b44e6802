"""When a run whose worker was killed or has crashed goes on by itself."""

from datetime import UTC, datetime

LONGEST_MS = 3_600_000
"""The longest wait. A `not_before` farther away comes of a clock that was set back: ignore it."""


def goes_on_at(now: int, retry_seconds: float, times: int) -> int:
    """The time, in ms since 1970 as ``now``, of the next try after ``times`` failures in a row.

    The wait is ``retry_seconds`` after the first failure and doubles with each one after it.
    """
    doublings = min(max(times, 1) - 1, 32)
    return now + min(round(retry_seconds * 1000) << doublings, LONGEST_MS)


def waits(not_before: int | None, now: int) -> bool:
    """Whether a run must still wait for its ``not_before``."""
    return not_before is not None and now < not_before <= now + LONGEST_MS


def goes_on(checkpoint: int | None, at: int | None = None) -> str:
    """In words where a run goes on from, and when: ``at`` in ms, None: as soon as it may."""
    place = "from the start" if checkpoint is None else f"from step {checkpoint}"
    if at is None:
        return f"goes on by itself {place}"
    local = datetime.fromtimestamp(at / 1000, UTC).astimezone()
    return f"goes on by itself {place} after {local:%H:%M:%S %Z}"
