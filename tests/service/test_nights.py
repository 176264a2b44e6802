"""Nights of real daemons: who is trained without being asked, and what the status says of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.nights import CLIENTS, NIGHTS, report, simulate
from tests.service.apps import pair
from tests.service.daemon import MODEL, Daemon, until, zone_where_it_is


def sensors(daemon: Daemon, text: str) -> None:
    new = daemon.home / "sensors.new"
    new.write_text(text)
    new.rename(daemon.home / "sensors.json")


def why(daemon: Daemon, name: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = daemon.adapter(name)["why"]
    return found


@pytest.fixture
def at_night(home: Path) -> Iterator[Daemon]:
    """In a zone in which it is between one and two at night: the window is open until seven."""
    with Daemon(home, environment={"TZ": zone_where_it_is(1)}) as daemon:
        daemon.create_adapter()
        yield daemon


def test_three_clients_over_three_nights(tmp_path: Path) -> None:
    found = report(simulate(tmp_path / "home"))
    assert found["starved"] == []
    assert found["completed"] == dict.fromkeys(CLIENTS, 1)
    minutes = found["minutes"]
    assert minutes["reader"] == [0.0, 0.0, pytest.approx(3.3, abs=0.6)]
    assert minutes["mail"] == [pytest.approx(33.3, abs=0.6), 0.0, 0.0]
    assert minutes["chat"][:2] == [pytest.approx(120, abs=0.6)] * 2
    assert len(minutes["chat"]) == NIGHTS
    rules = [(one["client"], one["rule"]) for one in found["stretches"]]
    assert rules == [
        ("mail", "enough-new"),
        ("chat", "enough-new"),
        ("chat", "unfinished"),
        ("chat", "unfinished"),
        ("reader", "waited-long"),
    ]


def test_at_night_whoever_is_due_is_trained_unasked(at_night: Daemon) -> None:
    at_night.script(steps=40, step_seconds=0.1)
    at_night.post_examples(train=19)
    assert why(at_night)["rule"] == "too-few-new"
    assert why(at_night)["window_open"]
    at_night.post_examples(train=6, holdout=0)
    at_night.http.put(
        "/v1/schedule",
        json={"windows": at_night.http.get("/v1/schedule").json()["windows"]},
        headers={"If-Match": "*"},
    )  # has the conductor look now instead of in half a minute
    until(lambda: at_night.http.get("/v1/adapters/phone/runs").json()["runs"])
    [run] = at_night.http.get("/v1/adapters/phone/runs").json()["runs"]
    assert (run["asked_by"], run["when"]) == ("night", "window")
    adapter = at_night.adapter()
    assert adapter["not_training_because"] is None
    assert (adapter["why"]["rule"], adapter["why"]["held_by"]) == ("enough-new", None)
    assert "25 new training examples came, and 20 make it due" in adapter["why"]["says"]
    assert at_night.wait_until_ended(run["id"])["status"] == "completed"
    assert why(at_night)["rule"] == "nothing-new"
    assert "version 1 was trained on all 25" in why(at_night)["says"]
    kinds = [entry["kind"] for entry in at_night.http.get("/v1/history").json()["entries"]]
    assert {"window-opened", "run-chosen", "run-completed"} <= set(kinds)


def test_at_noon_nobody_is_trained_unasked_and_the_status_says_why(own: Daemon) -> None:
    own.post_examples(train=25, holdout=0)
    found = why(own)
    assert (found["rule"], found["held_by"], found["place"]) == ("enough-new", "window", 1)
    assert "o window of the schedule is open; the next window opens on" in found["says"]
    assert own.adapter()["not_training_because"] == found["says"]
    assert own.http.get("/v1/device").json()["worker"]["state"] == "idle"
    run_id = own.train(when="window")
    until(lambda: own.http.get("/v1/device").json()["worker"]["state"] == "waiting")
    assert own.run(run_id)["status"] == "queued"
    found = why(own)
    assert (found["rule"], found["held_by"]) == ("unfinished", "window")
    assert found["next_window"] is not None
    noon = {
        "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
        "from": "10:00",
        "to": "15:00",
    }
    own.http.put("/v1/schedule", json={"windows": [noon]}, headers={"If-Match": "*"})
    assert own.wait_until_ended(run_id)["status"] == "completed", "its window has opened"


def test_a_gate_is_named_and_what_it_stopped_goes_on(own: Daemon) -> None:
    own.script(steps=2000, step_seconds=0.05)
    sensors(own, '{"plugged": false}')
    run_id = own.train()
    until(lambda: why(own)["held_by"] == "gates")
    assert own.run(run_id)["status"] == "queued"
    assert "charger" in why(own)["says"]
    assert why(own)["rule"] == "asked-now"
    gates = {gate["name"]: gate for gate in own.http.get("/v1/device").json()["gates"]}
    assert not gates["charging"]["open"]
    kinds = [entry["kind"] for entry in own.http.get("/v1/history").json()["entries"]]
    assert kinds.count("gate-closed") == 1


def test_an_app_hears_no_name_of_another(own: Daemon) -> None:
    own.script(steps=2000, step_seconds=0.05)
    first = own.train()
    own.wait_for(first, lambda run: run["step"] >= 1)
    with pair(own, "app") as app:
        body = {"name": "theirs", "base_model": MODEL, "labels": ["now", "later"]}
        assert app.http.post("/v1/adapters", json=body).status_code == 201
        example = {"input": "a text", "label": "now", "split": "train"}
        assert app.http.post("/v1/adapters/theirs/examples", json=example).status_code == 201
        assert app.http.post("/v1/adapters/theirs/runs", json={}).status_code == 202
        answer = app.http.get("/v1/adapters/theirs")
        assert answer.json()["why"]["held_by"] == "turn"
        assert "phone" not in answer.text
        assert "owner" not in answer.text
