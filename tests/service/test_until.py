"""What a person says for a time that lies ahead."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from service.cli.until import until

BERLIN = ZoneInfo("Europe/Berlin")


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


@pytest.mark.parametrize(
    ("text", "now", "meant"),
    [
        ("07:00", "2026-11-30T06:59", "2026-11-30T06:00Z"),
        ("07:00", "2026-11-30T07:00", "2026-12-01T06:00Z"),
        ("7:05", "2026-11-30T23:30", "2026-12-01T06:05Z"),
        ("00:00", "2026-12-31T23:59", "2026-12-31T23:00Z"),
        ("90m", "2026-11-30T23:30", "2026-12-01T00:00Z"),
        ("2h", "2026-11-30T23:30", "2026-12-01T00:30Z"),
        ("1h30m", "2026-11-30T23:30", "2026-12-01T00:00Z"),
        ("2h", "2026-03-29T01:30", "2026-03-29T02:30Z"),  # two hours, whatever the clocks do
        ("07:00", "2026-03-28T23:00", "2026-03-29T05:00Z"),  # summer begins in that night
        ("07:00", "2026-10-24T23:00", "2026-10-25T06:00Z"),
        ("02:30", "2026-10-25T01:00", "2026-10-25T00:30Z"),
        ("2026-12-01T08:00", "2026-11-30T23:30", "2026-12-01T07:00Z"),
        ("2026-12-01 08:00", "2026-11-30T23:30", "2026-12-01T07:00Z"),
        ("2026-12-01T08:00Z", "2026-11-30T23:30", "2026-12-01T08:00Z"),
        ("2027-06-01T08:00", "2026-11-30T23:30", "2027-06-01T06:00Z"),
    ],
)
def test_is_meant_by_the_clock_of_the_zone(text: str, now: str, meant: str) -> None:
    found = until(text, berlin(now))
    assert found == datetime.fromisoformat(meant)
    assert found.tzinfo is UTC


def test_in_the_repeated_hour_the_second_time_is_the_next() -> None:
    half_past = berlin("2026-10-25T02:30")
    assert until("02:30", half_past) == berlin("2026-10-25T02:30", fold=1).astimezone(UTC)
    again = berlin("2026-10-25T02:30", fold=1)
    assert until("02:30", again) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "h",
        "7",
        "25:00",
        "07:60",
        "90",
        "90s",
        "-2h",
        "2h30",
        "30m1h",
        "tomorrow",
        "07:00Z",
        "2026-12-01",
        "2026-13-01T08:00",
        "2026-12-01T25:00",
        "20261201T0800",
        "0001-01-01T00:00",
    ],
)
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a clock time as 07:00.*; found"):
        until(text, berlin("2026-11-30T12:00"))
