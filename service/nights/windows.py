"""When a window of the schedule is open, as pure functions of instant and zone.

A window begins on each of its days at the local time ``from`` and ends at ``to`` of the same date,
or of the next one if ``to`` is earlier. Where the clocks change in between it is longer or shorter
than its times say:

    the repeated hour   a window begins at the first and ends at the second time a clock shows it:
                        one opening, never two
    the skipped hour    what a clock never shows is the instant of the jump; a window wholly inside
                        doesn't open that night
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from api_schemas.schedule import DAYS, Window

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)

_AROUND = 2
"""Days before and after the local date on which what is open now may have begun, generously."""

_AHEAD = 15
"""Days in which every window opens: even one of a single weekday that is skipped once."""

_WITHOUT_END = timedelta(days=8)
"""Open for more than a week is open for ever: windows come back every week."""


@dataclass(frozen=True)
class Opening:
    """One opening of a window: from ``begins`` to ``ends``, both aware, in UTC.

    ``key`` is the local date and time at which the window begins by the schedule, as
    ``2026-11-30 23:00``: the same night whatever becomes of clock and zone in it.
    """

    key: str
    begins: datetime
    ends: datetime


def opening(windows: Sequence[Window], now: datetime, zone: tzinfo) -> Opening | None:
    """The opening that ``now`` (aware) is in; its end is no longer part of it.

    Of several the one that ends last; of those the one that began first; of those, which only the
    skipped hour makes, the one with the earlier time in its key.
    """
    found = [
        one
        for window in windows
        for one in _openings(window, now, zone, -_AROUND, _AROUND)
        if one.begins <= now < one.ends
    ]
    return min(found, key=lambda one: (-one.ends.timestamp(), one.begins, one.key), default=None)


def next_opening(windows: Sequence[Window], now: datetime, zone: tzinfo) -> Opening | None:
    """The first opening that begins after ``now`` (aware), whether or not one is open already.

    Of several that begin at one instant the one that `opening` would choose.
    """
    found = [
        first
        for window in windows
        for first in _first(_openings(window, now, zone, -_AROUND, _AHEAD), now)
    ]
    return min(found, key=lambda one: (one.begins, -one.ends.timestamp(), one.key), default=None)


def open_until(windows: Sequence[Window], now: datetime, zone: tzinfo) -> datetime | None:
    """When it will first be closed, counting what touches or overlaps as one.

    None: nothing is open at ``now`` (aware), or it never closes.
    """
    until = None
    while (one := opening(windows, until or now, zone)) is not None:
        until = one.ends
        if until - now > _WITHOUT_END:
            return None
    return until


def _first(openings: Iterator[Opening], now: datetime) -> list[Opening]:
    return next(([one] for one in openings if one.begins > now), [])


def _openings(
    window: Window, now: datetime, zone: tzinfo, first: int, last: int
) -> Iterator[Opening]:
    """Those of the local dates from ``first`` to ``last`` days after that of ``now``, in order."""
    begin, end = time.fromisoformat(window.begin), time.fromisoformat(window.end)
    today = now.astimezone(zone).date()
    for days in range(first, last + 1):
        day = today + days * _DAY
        if DAYS[day.weekday()] not in window.days:
            continue
        begins = _instant(day, begin, zone, fold=0)
        ends = _instant(day if begin < end else day + _DAY, end, zone, fold=1)
        if begins < ends:
            yield Opening(f"{day.isoformat()} {window.begin}", begins, ends)


def _instant(day: date, clock: time, zone: tzinfo, fold: int) -> datetime:
    """When a clock shows this: the first (``fold`` 0) or second time (1), or that of the jump."""
    wall = datetime.combine(day, clock)
    instant = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    if _wall(instant, zone) == wall:
        return instant
    # In the gap the two folds count with the offsets before and after, and lie around the jump.
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    after = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    while after - before > _SECOND:
        middle = before + ((after - before) // 2).seconds * _SECOND
        if _wall(middle, zone) < wall:
            before = middle
        else:
            after = middle
    return after


def _wall(instant: datetime, zone: tzinfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)
