"""GET and PUT /v1/schedule."""

from typing import Any

import pytest

from tests.service.apps import pair
from tests.service.daemon import Daemon

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
    assert (first.json()["in_force"], first.json()["changed_at"]) == (False, None)
    assert "only when asked" in first.json()["why"]
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
