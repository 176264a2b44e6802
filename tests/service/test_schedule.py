"""GET and PUT /v1/schedule."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.service.apps import pair
from tests.service.daemon import Daemon, zone_where_it_is

NIGHT = {
    "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
    "from": "23:00",
    "to": "07:00",
}


def put(daemon: Daemon, windows: Any, if_match: str | None = "*") -> Any:
    headers = {} if if_match is None else {"If-Match": if_match}
    return daemon.http.put("/v1/schedule", json={"windows": windows}, headers=headers)


def test_windows_are_put_behind_their_etag_and_survive(daemon: Daemon) -> None:
    first = daemon.http.get("/v1/schedule")
    assert first.json()["windows"] == [NIGHT]
    assert (first.json()["in_force"], first.json()["changed_at"]) == (True, None)
    assert put(daemon, [NIGHT]).headers["ETag"] == first.headers["ETag"], "nothing has changed"
    noon = {"days": ["sun", "sat"], "from": "12:00", "to": "13:30"}
    assert put(daemon, [noon], None).status_code == 428
    assert put(daemon, [noon], '"17"').status_code == 412
    changed = put(daemon, [noon, NIGHT], first.headers["ETag"])
    assert changed.status_code == 200
    assert changed.json()["windows"] == [noon | {"days": ["sat", "sun"]}, NIGHT]
    assert changed.headers["ETag"] != first.headers["ETag"]
    assert put(daemon, [NIGHT], first.headers["ETag"]).status_code == 412
    assert put(daemon, [noon, NIGHT]).headers["ETag"] == changed.headers["ETag"]
    daemon.stop()
    daemon.start()
    again = daemon.http.get("/v1/schedule")
    assert again.json() == changed.json()
    assert again.headers["ETag"] == changed.headers["ETag"]
    assert put(daemon, [NIGHT]).headers["ETag"] not in (
        first.headers["ETag"],
        changed.headers["ETag"],
    )
    kinds = [entry["kind"] for entry in daemon.http.get("/v1/history").json()["entries"]]
    assert kinds.count("schedule-changed") == 2


@pytest.mark.parametrize(
    ("windows", "field"),
    [
        ([], "body.windows"),
        ([NIGHT] * 21, "body.windows"),
        ("23:00", "body.windows"),
        ([NIGHT | {"days": []}], "body.windows[0].days"),
        ([NIGHT | {"days": ["mon", "mon"]}], "body.windows[0].days"),
        ([NIGHT | {"days": ["Mon"]}], "body.windows[0].days[0]"),
        ([NIGHT | {"from": "24:00"}], "body.windows[0].from"),
        ([NIGHT | {"to": "7:00"}], "body.windows[0].to"),
        ([NIGHT | {"to": "07:60"}], "body.windows[0].to"),
        ([NIGHT | {"to": "07:00\n"}], "body.windows[0].to"),
        ([NIGHT | {"from": 23}], "body.windows[0].from"),
        ([NIGHT, NIGHT | {"from": "07:00"}], "body.windows[1]"),
        ([NIGHT | {"until": "07:00"}], "body.windows[0].until"),
        ([NIGHT | {"begin": "07:00"}], "body.windows[0].begin"),
        ([{"days": ["mon"], "from": "10:00"}], "body.windows[0].to"),
    ],
)
def test_what_is_no_window_is_named(shared: Daemon, windows: Any, field: str) -> None:
    response = put(shared, windows)
    assert response.status_code == 422
    assert field in [error["field"] for error in response.json()["errors"]]
    assert shared.http.get("/v1/schedule").json()["windows"] == [NIGHT]


def test_an_app_reads_the_schedule_and_does_not_change_it(shared: Daemon) -> None:
    with pair(shared, "schedule-app") as app:
        assert app.http.get("/v1/schedule").json()["windows"] == [NIGHT]
        response = app.http.put(
            "/v1/schedule", json={"windows": [NIGHT]}, headers={"If-Match": "*"}
        )
        assert response.status_code == 403


def moments(answer: dict[str, Any]) -> tuple[datetime, datetime]:
    """From when to when the next window is open, by the clock of the zone that it names."""
    zone = ZoneInfo(answer["zone"])
    begin, end = (datetime.fromisoformat(answer["next"][key]) for key in ("from", "to"))
    return begin.astimezone(zone), end.astimezone(zone)


def test_at_noon_it_tells_the_coming_night(shared: Daemon) -> None:
    answer = shared.http.get("/v1/schedule").json()
    assert answer["zone"].startswith("Etc/GMT")
    assert not answer["open"]
    assert answer["open_until"] is None
    today = datetime.now(ZoneInfo(answer["zone"])).date()
    begins, ends = moments(answer)
    assert begins.replace(tzinfo=None) == datetime.fromisoformat(f"{today} 23:00")
    assert ends.replace(tzinfo=None) == datetime.fromisoformat(f"{today} 07:00") + timedelta(days=1)
    assert answer["pause"] == {"paused": False, "since": None, "until": None}


def test_at_night_it_tells_until_when_and_the_night_after(home: Path) -> None:
    zone = zone_where_it_is(1)
    with Daemon(home, environment={"TZ": zone}) as daemon:
        answer = daemon.http.get("/v1/schedule").json()
        today = datetime.now(ZoneInfo(zone)).date()
        assert answer["open"]
        until = datetime.fromisoformat(answer["open_until"]).astimezone(ZoneInfo(zone))
        assert until.replace(tzinfo=None) == datetime.fromisoformat(f"{today} 07:00")
        assert moments(answer)[0].replace(tzinfo=None) == datetime.fromisoformat(f"{today} 23:00")
        # What touches goes on: from the one window into the other, and on into the first.
        halves = [
            NIGHT | {"from": "00:00", "to": "12:00"},
            NIGHT | {"from": "12:00", "to": "23:30"},
        ]
        answer = put(daemon, halves).json()
        until = datetime.fromisoformat(answer["open_until"]).astimezone(ZoneInfo(zone))
        assert until.replace(tzinfo=None) == datetime.fromisoformat(f"{today} 23:30")
        begins, ends = moments(answer)
        assert begins.replace(tzinfo=None) == datetime.fromisoformat(f"{today}") + timedelta(days=1)
        assert ends - begins == timedelta(hours=23.5)
        always = [
            NIGHT | {"from": "00:00", "to": "12:00"},
            NIGHT | {"from": "12:00", "to": "00:00"},
        ]
        answer = put(daemon, always).json()
        assert (answer["open"], answer["open_until"], answer["next"]) == (True, None, None)
