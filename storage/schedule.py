"""The schedule: its windows, and how often they have changed."""

from typing import Any

from sqlmodel import Session

from storage import history
from storage.clock import now_ms
from storage.ledgers import ScheduleRow

EVERY_NIGHT: list[dict[str, Any]] = [
    {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "from": "23:00", "to": "07:00"}
]
"""The windows until somebody sets others."""

_ONLY_ROW = 1


def get(session: Session) -> ScheduleRow | None:
    """The schedule that was set; None: it is `EVERY_NIGHT`, and its revision is 0."""
    return session.get(ScheduleRow, _ONLY_ROW)


def windows_of(row: ScheduleRow | None) -> list[dict[str, Any]]:
    """The windows of the schedule as `get` found it."""
    return EVERY_NIGHT if row is None else row.windows


def put(session: Session, windows: list[dict[str, Any]]) -> ScheduleRow | None:
    """Set the windows; the revision counts up if they differ from those before."""
    row = get(session)
    if windows == windows_of(row):
        return row
    if row is None:
        row = ScheduleRow(windows=windows)
    else:
        row.windows, row.revision, row.changed_at = windows, row.revision + 1, now_ms()
    session.add(row)
    history.add(session, "schedule-changed", f"the schedule has {len(windows)} windows now")
    session.flush()
    return row
