"""GET /v1/device."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from api_schemas.gates import GATES
from service import device
from tests.service.apps import pair
from tests.service.battery_program import BatteryProgram
from tests.service.daemon import Daemon, holding, until


def worker(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.http.get("/v1/device").json()["worker"]
    return found


def test_the_device_says_what_it_has_and_does(ready: Daemon) -> None:
    answer = ready.http.get("/v1/device").json()
    for room in (answer["storage"], answer["memory"]):
        assert 0 < room["free_bytes"] <= room["total_bytes"]
    assert answer["worker"] == {"state": "idle", "run": None, "because": None}
    assert answer["database_bytes"] >= (ready.home / "lorad.db").stat().st_size
    assert [gate["name"] for gate in answer["gates"]] == list(GATES)
    until(lambda: all(gate["open"] for gate in ready.http.get("/v1/device").json()["gates"]))
    with holding(ready.home / "worker.lock"):
        run_id = ready.train()
        until(
            lambda: "worker.lock" in str(ready.http.get("/v1/device").json()["worker"]["because"])
        )
        assert ready.http.get("/v1/device").json()["worker"]["state"] == "waiting"
    ready.wait_until_ended(run_id)
    engine = ready.http.get("/v1/device").json()["engine"]
    assert engine["run"] == run_id
    assert (engine["requested"], engine["name"], engine["why"]) == ("auto", "stand_in", "a test")
    assert engine["report"]["engine"] == "stand_in"
    assert engine["report"]["why"] == "a test"


def test_the_device_says_what_its_sensors_read(ready: Daemon) -> None:
    answer = ready.http.get("/v1/device").json()
    expected = {"level": (100, "%"), "plugged": (True, None), "full": (False, None)}
    for name, (value, unit) in (expected | {"temperature": (25, "°C")}).items():
        reading = answer["battery"][name]
        assert 0 <= reading.pop("age_seconds") < 10
        assert reading == {"value": value, "unit": unit, "source": "sensors.json", "why": None}
    assert answer["skin_temperature"]["value"] is None
    sensors = ready.home / "sensors.json"
    sensors.write_text('{"level": 101, "skin_temperature": 33.5, "silent": ["plugged"]}')
    try:
        answer = ready.http.get("/v1/device").json()
    finally:
        sensors.unlink()
    assert answer["battery"]["level"]["why"] == "expected 0 to 100 %, found 101.0"
    assert answer["battery"]["plugged"]["value"] is None
    assert answer["skin_temperature"]["value"] == 33.5


def test_a_silent_battery_holds_nobody_up_but_who_asked_first(home: Path, tmp_path: Path) -> None:
    program = BatteryProgram(tmp_path / "prefix/bin")
    program.does("forks-and-hangs")
    environment = {"LORAD_SENSORS": "auto", "PREFIX": str(program.folder.parent)}
    with Daemon(home, environment=environment) as daemon, ThreadPoolExecutor() as others:
        first = others.submit(daemon.http.get, "/v1/device")
        until(program.running)
        meanwhile = daemon.http.get("/v1/device").json()
        assert not first.done()
        assert meanwhile["battery"]["level"]["value"] is None
        answer = first.result().json()
        assert not program.leftovers()
        assert daemon.worker_pids() == set()
        last = daemon.http.get("/v1/device").json()
    assert program.calls == 2  # after a first silence there is a second try
    for battery in (answer["battery"], last["battery"]):
        for reading in battery.values():
            assert reading["value"] is None
            assert reading["age_seconds"] >= 5
            assert reading["why"] == "termux-battery-status did not answer within 5 seconds"
    program.does("ok")
    with Daemon(home, environment=environment) as daemon:
        answer = daemon.http.get("/v1/device").json()
    assert answer["battery"]["level"]["value"] == 91
    assert answer["battery"]["plugged"]["source"] == "termux-battery-status"


def test_another_clients_training_is_only_another_training(ready: Daemon) -> None:
    ready.wait_until_ended(ready.train())
    ready.script(steps=1000, step_seconds=0.05)
    run_id = ready.train()
    ready.wait_for(run_id, lambda run: run["step"] >= 1)
    assert ready.http.get("/v1/device").json()["worker"]["run"] == run_id
    with pair(ready, "device-app") as app:
        answer = app.http.get("/v1/device").json()
    assert answer["worker"] == {"state": "training", "run": None, "because": None}
    assert (answer["engine"]["run"], answer["engine"]["report"]) == (None, None)
    assert answer["engine"]["name"] != "stand_in", "that is of the other's run"
    assert answer["database_bytes"] is None


def test_what_the_system_does_not_say_is_null(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert device.memory(missing).free_bytes is None
    assert device.storage(missing).free_bytes is None
    assert device.database_bytes(missing) == 0
    odd = tmp_path / "meminfo"
    odd.write_text("MemTotal:       2048 kB\nMemAvailable: many kB\nHuge: 3\n\n")
    assert device.memory(odd).total_bytes == 2048 * 1024
    assert device.memory(odd).free_bytes is None
