"""When windows are open, against an oracle that walks through the minutes with the zone's clock."""

from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_schemas.schedule import DAYS, Day, Window
from service.nights.windows import Opening, next_opening, open_until, opening

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

CHANGES = {
    ("Europe/Berlin", "forward"): date(2026, 3, 29),
    ("Europe/Berlin", "back"): date(2026, 10, 25),
    ("America/New_York", "forward"): date(2026, 3, 8),
    ("America/New_York", "back"): date(2026, 11, 1),
    ("Australia/Lord_Howe", "forward"): date(2026, 10, 4),
    ("Australia/Lord_Howe", "back"): date(2026, 4, 5),
    ("America/Havana", "forward"): date(2026, 3, 8),  # at midnight
    ("America/Havana", "back"): date(2026, 11, 1),  # from 01:00 to midnight
    ("Asia/Beirut", "back"): date(2026, 10, 25),  # from midnight to 23:00 of the day before
    ("Pacific/Apia", "forward"): date(2011, 12, 30),  # a whole day that never was
    ("Asia/Tokyo", "none"): date(2026, 5, 1),
}
BERLIN, NEW_YORK, LORD_HOWE = map(
    ZoneInfo, ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
)


def window(begin: str, end: str, *days: Day) -> Window:
    return Window.model_validate({"days": list(days or DAYS), "from": begin, "to": end})


def at(zone: ZoneInfo, text: str, fold: int = 0) -> datetime:
    """The instant at which a clock of the zone shows ``text`` (for the second time: fold 1)."""
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).astimezone(UTC)


def hours(one: Opening | None) -> float:
    assert one is not None
    return (one.ends - one.begins) / timedelta(hours=1)


# The oracle: what a wall clock shows in each minute of twelve days, and nothing computed.


@cache
def wall_clock(zone: str, around: date) -> dict[datetime, list[datetime]]:
    """What a wall clock shows, minute by minute, with the instants at which it shows it."""
    local = ZoneInfo(zone)
    begin = datetime.combine(around, time(), UTC) - 5 * DAY
    shows: dict[datetime, list[datetime]] = {}
    for minute in range(13 * 24 * 60):
        instant = begin + minute * MINUTE
        shows.setdefault(instant.astimezone(local).replace(tzinfo=None, fold=0), []).append(instant)
    return shows


def shown(zone: str, around: date, wall: datetime, last: bool) -> datetime:
    """The first or last minute in which the clock shows ``wall``, else the first that is later."""
    shows = wall_clock(zone, around)
    while wall not in shows:
        wall += MINUTE
    return shows[wall][-1 if last else 0]


def oracle(windows: list[Window], zone: str, around: date) -> list[Opening]:
    """All openings that begin from three days before ``around`` to five days after it."""
    found = []
    for one in windows:
        for number in range(-3, 6):
            day = around + number * DAY
            if day.strftime("%a").lower() not in one.days:
                continue
            begin = datetime.fromisoformat(f"{day} {one.begin}")
            end = datetime.fromisoformat(f"{day} {one.end}")
            if end < begin:
                end += DAY
            begins = shown(zone, around, begin, last=False)
            ends = shown(zone, around, end, last=True)
            if begins < ends:
                found.append(Opening(f"{day} {one.begin}", begins, ends))
    return found


clocks = st.one_of(
    st.builds(lambda h, m: f"{h:02}:{m:02}", st.integers(0, 23), st.integers(0, 59)),
    # Where changes happen, and exactly at their edges.
    st.sampled_from(["00:00", "00:30", "01:00", "01:30", "01:45", "02:00", "02:15", "02:30"]),
    st.sampled_from(["02:45", "03:00", "03:30", "23:00", "23:30", "23:59"]),
)
some_days = st.lists(st.sampled_from(DAYS), min_size=1, max_size=7, unique=True)
some_windows = st.lists(
    st.builds(lambda b, e, d: (b, e, d), clocks, clocks, some_days)
    .filter(lambda one: one[0] != one[1])
    .map(lambda one: window(one[0], one[1], *one[2])),
    min_size=1,
    max_size=4,
)
changes = st.sampled_from(sorted(CHANGES.items()))
seconds = st.one_of(
    st.integers(-86_400, 3 * 86_400),
    st.integers(-24 * 60, 3 * 24 * 60).map(lambda minute: minute * 60),
)


@given(some_windows, changes, seconds)
def test_until_the_last_end_it_is_never_closed(
    windows: list[Window], change: tuple[tuple[str, str], date], offset: int
) -> None:
    (name, _), around = change
    zone = ZoneInfo(name)
    now = datetime.combine(around, time(), UTC) + timedelta(seconds=offset)
    until = open_until(windows, now, zone)
    if until is None:
        week = [now + hour * timedelta(hours=1) for hour in range(1, 8 * 24)]
        are_open = [opening(windows, instant, zone) is not None for instant in (now, *week)]
        assert all(are_open) or not are_open[0]
    else:
        assert opening(windows, until, zone) is None
        ends = {one.ends for one in oracle(windows, name, around) if now < one.ends < until}
        assert all(opening(windows, end, zone) for end in {now, *ends})


@settings(max_examples=400)
@given(some_windows, changes, seconds)
def test_is_open_exactly_when_the_clock_says_so(
    windows: list[Window], change: tuple[tuple[str, str], date], offset: int
) -> None:
    (name, _), around = change
    zone = ZoneInfo(name)
    now = datetime.combine(around, time(), UTC) + timedelta(seconds=offset)
    every = oracle(windows, name, around)
    found = opening(windows, now, zone)
    are_open = [one for one in every if one.begins <= now < one.ends]
    if found is None:
        assert not are_open
    else:
        assert found in are_open
        assert found.ends == max(one.ends for one in are_open)
        assert found.begins == min(one.begins for one in are_open if one.ends == found.ends)
    later = [one for one in every if one.begins > now]
    following = next_opening(windows, now, zone)
    assert following is not None
    assert following.begins > now
    if later:  # else it is beyond the days that the oracle looks at
        assert following in later
        assert following.begins == min(one.begins for one in later)


@given(some_windows, changes, seconds)
def test_an_opening_is_the_same_one_from_its_first_to_its_last_instant(
    windows: list[Window], change: tuple[tuple[str, str], date], offset: int
) -> None:
    (name, _), around = change
    zone = ZoneInfo(name)
    now = datetime.combine(around, time(), UTC) + timedelta(seconds=offset)
    for one in windows:
        found = next_opening([one], now, zone)
        assert found is not None
        assert opening([one], found.begins, zone) == found
        assert opening([one], found.ends - timedelta(microseconds=1), zone) == found
        before = opening([one], found.begins - timedelta(microseconds=1), zone)
        after = opening([one], found.ends, zone)
        assert found not in (before, after)
        assert next_opening([one], found.begins - timedelta(seconds=1), zone) == found
        assert found.begins.utcoffset() == found.ends.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("zone", "evening", "length"),
    [
        (BERLIN, "2026-03-28", 7),
        (BERLIN, "2026-06-01", 8),
        (BERLIN, "2026-10-24", 9),
        (NEW_YORK, "2026-03-07", 7),
        (NEW_YORK, "2026-10-31", 9),
        (LORD_HOWE, "2026-10-03", 7.5),
        (LORD_HOWE, "2026-04-04", 8.5),
    ],
)
def test_a_night_has_its_true_length(zone: ZoneInfo, evening: str, length: float) -> None:
    found = opening([window("23:00", "07:00")], at(zone, f"{evening} 23:30"), zone)
    assert hours(found) == length
    assert found is not None
    assert found.key == f"{evening} 23:00"


def test_on_the_skipped_hour_a_window_begins_at_the_jump() -> None:
    jump = at(BERLIN, "2026-03-29 03:00")
    found = next_opening([window("02:30", "04:00")], at(BERLIN, "2026-03-28 12:00"), BERLIN)
    assert found == Opening("2026-03-29 02:30", jump, at(BERLIN, "2026-03-29 04:00"))
    assert opening([window("02:30", "04:00")], jump - timedelta(seconds=1), BERLIN) is None
    assert opening([window("02:30", "04:00")], jump, BERLIN) == found


def test_on_the_skipped_hour_a_window_ends_at_the_jump() -> None:
    now = at(BERLIN, "2026-03-29 01:45")
    found = opening([window("01:00", "02:30")], now, BERLIN)
    assert found is not None
    assert found.ends == at(BERLIN, "2026-03-29 03:00")
    assert hours(found) == 1


def test_a_window_inside_the_skipped_hour_waits_for_the_next_day() -> None:
    small = [window("02:15", "02:45")]
    now = at(BERLIN, "2026-03-29 00:00")
    found = next_opening(small, now, BERLIN)
    assert found is not None
    assert found.key == "2026-03-30 02:15"
    week_before = at(BERLIN, "2026-03-22 03:00")
    on_sundays = next_opening([window("02:15", "02:45", "sun")], week_before, BERLIN)
    assert on_sundays is not None
    assert on_sundays.key == "2026-04-05 02:15"
    jump = at(BERLIN, "2026-03-29 03:00")
    assert not [m for m in range(-90, 90) if opening(small, jump + m * MINUTE, BERLIN)]


@pytest.mark.parametrize(
    ("begin", "end", "length"),
    [("02:30", "02:45", 1.25), ("02:30", "03:30", 2), ("01:30", "02:30", 2), ("02:00", "03:00", 2)],
)
def test_in_the_repeated_hour_there_is_one_opening(begin: str, end: str, length: float) -> None:
    first = at(BERLIN, f"2026-10-25 {begin}")
    minutes = [first + minute * MINUTE for minute in range(-300, 600)]
    found = [opening([window(begin, end)], minute, BERLIN) for minute in minutes]
    are_open = [index for index, one in enumerate(found) if one is not None]
    assert are_open == list(range(are_open[0], are_open[-1] + 1)), "no break in it"
    assert len(set(found) - {None}) == 1
    one = found[are_open[0]]
    assert hours(one) == length == len(are_open) / 60
    assert one is not None
    assert one.begins == first
    assert one.ends == at(BERLIN, f"2026-10-25 {end}", fold=1)


def test_a_journey_in_the_night_does_not_begin_another() -> None:
    night = [window("23:00", "07:00")]
    now = at(BERLIN, "2026-11-30 23:30")
    keys = set()
    for name in ("Europe/Berlin", "Europe/Athens", "Asia/Karachi", "Europe/Berlin"):
        found = opening(night, now, ZoneInfo(name))
        assert found is not None
        keys.add(found.key)
        now += timedelta(minutes=30)
    assert keys == {"2026-11-30 23:00"}
    # Further west it isn't night yet; when it is, it is the same one.
    assert opening(night, at(BERLIN, "2026-12-01 03:00"), NEW_YORK) is None
    again = opening(night, at(NEW_YORK, "2026-11-30 23:00"), NEW_YORK)
    assert again is not None
    assert again.key == "2026-11-30 23:00"


def test_a_clock_that_is_set_back_sees_the_same_again() -> None:
    night = [window("23:00", "07:00"), window("12:00", "13:00", "mon")]
    begin = at(BERLIN, "2026-11-29 20:00")
    instants = [begin + 7 * minute * MINUTE for minute in range(400)]
    forth = [(opening(night, t, BERLIN), next_opening(night, t, BERLIN)) for t in instants]
    back = [(opening(night, t, BERLIN), next_opening(night, t, BERLIN)) for t in instants[::-1]]
    assert forth == back[::-1]
    # The same instant told in another zone's words is the same instant.
    told = [t.astimezone(NEW_YORK) for t in instants]
    assert forth == [(opening(night, t, BERLIN), next_opening(night, t, BERLIN)) for t in told]


def test_after_three_missed_nights_there_is_one_opening() -> None:
    night = [window("23:00", "07:00")]
    slept = at(BERLIN, "2026-11-27 20:00")
    woke = at(BERLIN, "2026-12-01 03:00")
    first = next_opening(night, slept, BERLIN)
    assert first is not None
    assert first.key == "2026-11-27 23:00"
    found = opening(night, woke, BERLIN)
    assert found is not None
    assert found.key == "2026-11-30 23:00"


def test_weekdays_are_those_on_which_a_window_begins() -> None:
    friday = [window("23:00", "07:00", "fri")]  # 2026-12-04 is a Friday
    assert opening(friday, at(BERLIN, "2026-12-04 06:00"), BERLIN) is None
    assert opening(friday, at(BERLIN, "2026-12-04 23:00"), BERLIN) is not None
    assert opening(friday, at(BERLIN, "2026-12-05 06:59"), BERLIN) is not None
    assert opening(friday, at(BERLIN, "2026-12-05 07:00"), BERLIN) is None
    assert opening(friday, at(BERLIN, "2026-12-05 23:00"), BERLIN) is None
    following = next_opening(friday, at(BERLIN, "2026-12-04 23:00"), BERLIN)
    assert following is not None
    assert following.key == "2026-12-11 23:00"


def test_of_several_the_one_that_ends_last_is_open() -> None:
    early, late = window("22:00", "06:00"), window("23:00", "07:00")
    now = at(BERLIN, "2026-11-30 22:30")
    for windows in ([early, late], [late, early]):
        keys = [opening(windows, now + h * timedelta(hours=1), BERLIN) for h in (0, 1)]
        assert [one and one.key for one in keys] == ["2026-11-30 22:00", "2026-11-30 23:00"]
    same_end = [window("23:30", "07:00"), window("23:00", "07:00")]
    found = opening(same_end, at(BERLIN, "2026-12-01 00:00"), BERLIN)
    assert found is not None
    assert found.key == "2026-11-30 23:00"


def test_what_touches_or_overlaps_is_open_until_the_last_end() -> None:
    now = at(BERLIN, "2026-11-30 22:30")
    seven = at(BERLIN, "2026-12-01 07:00")
    overlapping = [window("22:00", "06:00"), window("23:00", "07:00")]
    assert open_until(overlapping, now, BERLIN) == seven
    touching = [window("22:00", "02:00"), window("02:00", "07:00")]
    assert open_until(touching, now, BERLIN) == seven
    apart = [window("22:00", "02:00"), window("02:01", "07:00")]
    assert open_until(apart, now, BERLIN) == at(BERLIN, "2026-12-01 02:00")
    assert open_until(touching, seven, BERLIN) is None
    always = [window("00:00", "12:00"), window("12:00", "00:00")]
    assert open_until(always, now, BERLIN) is None
    assert opening(always, now, BERLIN) is not None


def test_without_windows_nothing_opens() -> None:
    now = at(BERLIN, "2026-11-30 23:30")
    assert opening([], now, BERLIN) is None
    assert next_opening([], now, BERLIN) is None
    assert open_until([], now, BERLIN) is None
