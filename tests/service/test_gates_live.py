"""Gates of a real daemon, whose sensors a file plays: what they let through and what they tell."""

import json
from typing import Any

from tests.service.daemon import Daemon, until


def say(daemon: Daemon, **readings: Any) -> None:
    """What the sensors read from now on, and have the daemon look."""
    new = daemon.home / "sensors.new"
    new.write_text(json.dumps(readings))
    new.replace(daemon.home / "sensors.json")
    schedule = daemon.http.get("/v1/schedule")
    put = daemon.http.put(
        "/v1/schedule",
        json={"windows": schedule.json()["windows"]},
        headers={"If-Match": schedule.headers["ETag"]},
    )
    assert put.status_code == 200, put.text


def gates(daemon: Daemon) -> dict[str, dict[str, Any]]:
    return {gate["name"]: gate for gate in daemon.http.get("/v1/device").json()["gates"]}


def told(daemon: Daemon, kind: str) -> list[str]:
    entries = daemon.http.get("/v1/history", params={"kind": kind, "limit": 50}).json()["entries"]
    return [entry["message"] for entry in reversed(entries)]


def test_override_passes_the_charger_and_no_silence(own: Daemon) -> None:
    own.script(steps=2000, step_seconds=0.05)
    own.create_adapter("second")
    own.post_examples("second")
    say(own, plugged=False, level=60)
    waits = own.train()
    until(lambda: not gates(own)["charging"]["open"])
    passes = own.train("second", override=True)
    own.wait_for(passes, lambda run: run["step"] >= 1)
    assert own.run(waits)["status"] == "queued"
    charging = gates(own)["charging"]
    assert charging.pop("age_seconds") < 60
    assert charging == {
        "name": "charging",
        "open": False,
        "reading": False,
        "limit": True,
        "unit": None,
        "reason": "no charger is connected, and training needs one",
        "overridable": True,
    }
    first, second = told(own, "gate-closed")
    assert first == (
        "charging is closed, train:override passes (reading no, limit yes, 0 s old): "
        "no charger is connected, and training needs one"
    )
    assert second.startswith(
        "level is closed, train:override passes (reading 60 %, limit 80 %, 0 s old): "
    )

    say(own, plugged=False, level=60, silent=["battery_temperature"])
    run = own.wait_for(passes, lambda run: run["status"] == "interrupted")
    assert "the battery's temperature is not known" in run["error"]
    assert told(own, "gate-opened") == []
    assert "battery_temperature is closed (reading none, " in told(own, "gate-closed")[-1]

    say(own, plugged=False, level=60, storage_bytes=1)
    until(lambda: not gates(own)["storage"]["open"])
    assert own.run(passes)["status"] == "interrupted"
    because = own.http.get("/v1/device").json()["worker"]["because"]
    assert because.index("storage") < because.index("charger"), "first what nobody passes"
