"""The moment: what clock, zone, schedule and the user's pause say about training now."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cached_property

from sqlmodel import Session

from api_schemas.schedule import Window
from service.nights.local_zone import local_zone
from service.nights.windows import Opening, next_opening, opening
from storage import nights, schedule, training_pause
from storage.clock import now_ms


def wall_clock() -> datetime:
    """The present instant, in UTC, by the clock that everything is dated with."""
    return datetime.fromtimestamp(now_ms() / 1000, UTC)


@dataclass(frozen=True)
class Moment:
    """One look at the clock. ``night_id`` is the open night's, if it has been entered already."""

    now: datetime
    zone: tzinfo
    windows: tuple[Window, ...]
    opening: Opening | None
    night_id: int | None
    paused: bool
    paused_until: datetime | None

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return int(self.now.timestamp() * 1000)

    @cached_property
    def upcoming(self) -> Opening | None:
        """The first opening that begins after now."""
        return next_opening(self.windows, self.now, self.zone)

    @property
    def next_change(self) -> datetime | None:
        """When the next window begins, this one ends, or the pause is over: the first of them."""
        moments = [self.paused_until]
        moments.append(None if self.opening is None else self.opening.ends)
        moments.append(None if self.upcoming is None else self.upcoming.begins)
        return min((one for one in moments if one is not None), default=None)

    def local(self, instant: datetime) -> str:
        """The instant as the clock of the device will show it."""
        return f"{instant.astimezone(self.zone):%a %d %b %H:%M}"

    def next_window(self) -> str:
        """When the next window opens, in words."""
        if self.upcoming is None:
            return "the schedule has no next window"
        return f"the next window opens on {self.local(self.upcoming.begins)}"

    def resumption(self) -> str:
        """When a run goes on that waits for the next window, in words."""
        if self.upcoming is None:
            return "it goes on when the schedule has a window"
        return f"it goes on in the next window, on {self.local(self.upcoming.begins)}"

    def pause(self) -> str:
        """The user's pause, in words."""
        until = self.paused_until
        end = "it is resumed (lorad resume)" if until is None else self.local(until)
        return f"all training is paused until {end}"


class Moments:
    """Looks at the moment, with clocks that a simulation can replace."""

    def __init__(
        self,
        wall: Callable[[], datetime] = wall_clock,
        zone: Callable[[], tzinfo] = local_zone,
    ) -> None:
        """``wall`` tells the instant (aware), ``zone`` where the device is."""
        self._wall = wall
        self._ask_zone = zone
        self._zone: tzinfo | None = None

    def refresh(self) -> tzinfo:
        """Ask anew for the zone, which may take seconds: not while the database is held."""
        self._zone = self._ask_zone()
        return self._zone

    def look(self, session: Session) -> Moment:
        """Now, with the schedule and the pause of the session's snapshot."""
        now, zone = self._wall(), self._zone or self.refresh()
        stored = schedule.windows_of(schedule.get(session))
        windows = tuple(Window.model_validate(one) for one in stored)
        found = opening(windows, now, zone)
        night = None if found is None else nights.find(session, found.key)
        pause = training_pause.active(session, int(now.timestamp() * 1000))
        until = None if pause is None else pause.until
        return Moment(
            now,
            zone,
            windows,
            found,
            None if night is None else night.id,
            pause is not None,
            None if until is None else datetime.fromtimestamp(until / 1000, UTC),
        )
