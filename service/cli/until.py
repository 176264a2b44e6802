"""What a person may say for a time that lies ahead: a clock's, a date's, or how long from now."""

import re
from datetime import UTC, datetime, time, timedelta

_EXPECTED = (
    "expected a clock time as 07:00, a local date and time as 2026-12-01T08:00, or a duration as "
    "90m, 2h or 1h30m"
)


def until(text: str, now: datetime) -> datetime:
    """The instant that is meant, in UTC.

    Args:
        text: what was said, in local times of the zone of ``now``.
        now: an aware time.

    Raises:
        ValueError: it is none of what is expected.
    """
    try:
        if re.fullmatch(r"\d\d?:\d\d", text):
            return _next(time.fromisoformat(text.zfill(5)), now)
        duration = re.fullmatch(r"(?=.)(?:(\d{1,4})h)?(?:(\d{1,6})m)?", text)
        if duration is not None:
            hours, minutes = (int(part or 0) for part in duration.groups())
            return now.astimezone(UTC) + timedelta(hours=hours, minutes=minutes)
        if re.match(r"\d{4}-\d\d-\d\d[T ]", text):
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{_EXPECTED}; found {text!r}")


def _next(clock: time, now: datetime) -> datetime:
    """When a clock shows this next, be it the second time in the night of a repeated hour."""
    today = now.date()
    return next(
        moment
        for day in (today, today + timedelta(days=1))
        for fold in (0, 1)
        if (moment := datetime.combine(day, clock, now.tzinfo).replace(fold=fold).astimezone(UTC))
        > now
    )
