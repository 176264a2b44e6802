"""When a window of the schedule is open, as a pure function of instant and zone."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Opening:
    """One opening of a window: from ``begins`` to ``ends``, both aware, in UTC.

    ``key`` is the local date and time at which the window begins by the schedule, as
    ``2026-11-30 23:00``: the same night whatever becomes of clock and zone in it.
    """

    key: str
    begins: datetime
    ends: datetime
