"""The user's pause of all training, over HTTP."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.service.apps import pair
from tests.service.daemon import Daemon, until

NONE = {"paused": False, "since": None, "until": None}


@pytest.fixture
def paused(shared: Daemon) -> Iterator[Daemon]:
    """The module's daemon, paused; not paused afterwards."""
    assert shared.http.put("/v1/pause", json={"until": None}).status_code == 200
    yield shared
    assert shared.http.delete("/v1/pause").json() == NONE


def ahead(**duration: float) -> str:
    return (datetime.now(UTC) + timedelta(**duration)).isoformat()


def kinds(daemon: Daemon) -> list[str]:
    entries = daemon.http.get("/v1/history", params={"limit": 200}).json()["entries"]
    return [entry["kind"] for entry in entries if entry["kind"].startswith("training-")]


def test_is_there_until_it_is_ended(daemon: Daemon) -> None:
    assert daemon.http.get("/v1/pause").json() == NONE
    first = daemon.http.put("/v1/pause", json={"until": None}).json()
    assert (first["paused"], first["until"]) == (True, None)
    assert daemon.http.put("/v1/pause", json={"until": None}).json() == first
    daemon.kill()
    daemon.start()
    assert daemon.http.get("/v1/pause").json() == first
    assert daemon.http.get("/v1/schedule").json()["pause"] == first
    assert kinds(daemon) == ["training-paused"]
    assert daemon.http.delete("/v1/pause").json() == NONE
    assert daemon.http.delete("/v1/pause").json() == NONE
    assert daemon.http.get("/v1/pause").json() == NONE
    assert kinds(daemon) == ["training-resumed", "training-paused"]


def test_may_end_by_itself(paused: Daemon) -> None:
    since = paused.http.get("/v1/pause").json()["since"]
    end = datetime.now(UTC) + timedelta(seconds=1.5)
    answer = paused.http.put("/v1/pause", json={"until": end.isoformat()}).json()
    assert answer["paused"]
    assert answer["since"] == since
    told = datetime.fromisoformat(answer["until"])
    assert end - timedelta(milliseconds=2) <= told <= end
    until(lambda: paused.http.get("/v1/pause").json() == NONE)
    assert datetime.now(UTC) >= told
    assert paused.http.get("/v1/schedule").json()["pause"] == NONE


def test_its_end_may_be_told_in_any_offset(paused: Daemon) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=5)
    for zone in (UTC, datetime.fromisoformat("2026-01-01T00:00+05:45").tzinfo):
        told = paused.http.put("/v1/pause", json={"until": moment.astimezone(zone).isoformat()})
        assert datetime.fromisoformat(told.json()["until"]) == moment
    assert told.json()["until"].endswith(".000Z")


@pytest.mark.parametrize(
    "body",
    [
        {"until": ahead(seconds=-1)},
        {"until": ahead(days=367)},
        {"until": "2026-12-01T07:00:00"},
        {"until": "2026-12-01"},
        {"until": "07:00"},
        {"until": ""},
        {"until": "0001-01-01T00:00:00+14:00"},
        {"until": "9999-12-31T23:59:59-14:00"},
        {"until": 1_800_000_000},
        {"until": True},
        {},
        {"until": None, "for": 3},
    ],
)
def test_what_is_no_time_ahead_is_named(shared: Daemon, body: Any) -> None:
    response = shared.http.put("/v1/pause", json=body)
    assert response.status_code == 422
    expected = "body.for" if "for" in body else "body.until"
    assert [error["field"] for error in response.json()["errors"]] == [expected]
    assert shared.http.get("/v1/pause").json() == NONE


def test_an_app_sees_it_and_does_not_change_it(paused: Daemon) -> None:
    with pair(paused, "pause-app", "status:read", "train", "train:override") as app:
        assert app.http.get("/v1/pause").json()["paused"]
        assert app.http.delete("/v1/pause").status_code == 403
        assert app.http.put("/v1/pause", json={"until": None}).status_code == 403
        assert app.http.get("/v1/pause").json()["paused"]


def test_the_run_that_is_being_trained_waits_and_goes_on_by_itself(own: Daemon) -> None:
    own.script(steps=10_000, step_seconds=0.02)
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] > 3)
    assert own.http.put("/v1/pause", json={"until": None}).status_code == 200
    waiting = own.wait_for(run_id, lambda run: run["status"] == "interrupted", 10)
    assert "paused" in waiting["error"]
    assert own.steer(run_id, "resume").status_code < 300
    own.kill()
    own.start()
    until(lambda: "paused" in own.adapter()["not_training_because"])
    assert own.worker_pids() == set(), "neither asking for it nor a new start overcomes the pause"
    assert own.http.put("/v1/pause", json={"until": ahead(seconds=2)}).status_code == 200
    going = own.wait_for(run_id, lambda run: run["status"] == "running", 15)
    assert going["step"] >= waiting["step"]
    assert kinds(own) == ["training-resumed", "training-paused", "training-paused"]
