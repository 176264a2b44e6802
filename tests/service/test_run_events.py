"""GET /v1/runs/{id}/events from a real daemon, read by a parser of the standard."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.routes.run_events import KEEP_ALIVE_SECONDS
from service.runs.run_feed import STREAMS_A_CLIENT
from tests.service.apps import pair
from tests.service.daemon import CHANGED, Daemon, holding, is_alive, kill, until
from tests.service.sse import Sse, events_of

SLOW = {"steps": 1000, "step_seconds": 0.05}


@contextmanager
def watching(
    daemon: Daemon, run_id: int, last_id: str | None = None, token: str | None = None
) -> Iterator[Iterator[Sse]]:
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    with daemon.http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield events_of(response.iter_raw())


def apply(run: dict[str, Any], event: Sse) -> None:
    run.update(event.data)


def read_until(events: Iterator[Sse], name: str) -> Sse:
    for event in events:
        if event.name == name:
            return event
    raise AssertionError(f"the stream ended without {name}")


def test_a_run_is_watched_from_the_queue_to_its_end(ready: Daemon) -> None:
    with holding(ready.home / "worker.lock"):
        run_id = ready.train()
        with watching(ready, run_id) as stream:
            first = next(stream)
            assert first.name == "snapshot"
            assert first.data == ready.run(run_id)
            run = dict(first.data)
    ready.wait_until_ended(run_id)
    with watching(ready, run_id, first.last_id) as stream:
        events = list(stream)
    assert [event.data["step"] for event in events if event.name == "step"] == list(range(1, 13))
    assert [event.name for event in events[-3:]] == ["version", "status", "end"]
    assert [event.data["status"] for event in events if event.name == "status"] == [
        "running",
        "completed",
    ]
    for event in events[:-1]:
        apply(run, event)
    final = events[-1].data
    assert final == ready.run(run_id)
    told = {key: value for key, value in run.items() if final[key] != value}
    assert set(told) <= {"losses", "engine", "phase", "started_at", "finished_at"}
    assert len({event.last_id for event in events}) == len(events)


def test_a_broken_off_stream_goes_on_without_a_gap(ready: Daemon) -> None:
    ready.script(steps=30, step_seconds=0.05)
    run_id = ready.train()
    steps: list[int] = []
    last_id, snapshots, end = None, 0, None
    while end is None:
        with watching(ready, run_id, last_id) as stream:
            for count, event in enumerate(stream):
                last_id = event.last_id
                snapshots += event.name == "snapshot"
                if event.name == "step":
                    steps.append(event.data["step"])
                if event.name == "end":
                    end = event
                if count == 6:
                    break
    assert steps == list(range(1, 31))
    assert snapshots == 1
    assert end.data["status"] == "completed"
    response = ready.http.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": last_id})
    assert (response.status_code, response.content) == (204, b"")


def test_a_finished_run_is_a_snapshot_and_its_end(ready: Daemon) -> None:
    run_id = ready.train()
    ready.wait_until_ended(run_id)
    with watching(ready, run_id, "garbage") as stream:
        names = [event.name for event in stream]
    assert names == ["snapshot", "end"]


def test_ids_of_another_boot_begin_with_a_snapshot(own: Daemon) -> None:
    run_id = own.train()
    own.wait_until_ended(run_id)
    with watching(own, run_id) as stream:
        snapshot, end = list(stream)
    own.stop()
    own.start()
    with watching(own, run_id, snapshot.last_id) as stream:
        assert [event.name for event in stream] == ["snapshot", "end"]
    response = own.http.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": end.last_id})
    assert response.status_code == 204, "the end is the end for every daemon"


def test_a_pause_and_a_cancel_are_told(ready: Daemon) -> None:
    ready.script(**SLOW)
    run_id = ready.train()
    with watching(ready, run_id) as stream:
        read_until(stream, "step")
        ready.steer(run_id, "pause")
        assert read_until(stream, "status").data["wanted"] == "pause"
        status = read_until(stream, "status").data
        assert (status["status"], status["wanted"]) == ("paused", None)
        ready.steer(run_id, "cancel")
        assert read_until(stream, "status").data["status"] == "cancelled"
        end = next(stream)
        assert (end.name, end.data["status"]) == ("end", "cancelled")
        assert list(stream) == []


def test_an_interrupted_run_keeps_its_stream(ready: Daemon) -> None:
    ready.script(**SLOW)
    run_id = ready.train()
    with watching(ready, run_id) as stream:
        read_until(stream, "checkpoint")
        kill(ready.worker_pid())
        assert read_until(stream, "status").data["status"] == "interrupted"
        ready.script(steps=20)
        ready.train()
        assert read_until(stream, "started").data["resumed_from"] >= 5
        assert read_until(stream, "end").data["status"] == "completed"


def test_a_daemon_that_stops_ends_its_streams(home: Path) -> None:
    environment = {"CHANGED": json.dumps({"service.daemon:_GOODBYE_SECONDS": 60})}
    with Daemon(home, program=CHANGED, environment=environment) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        daemon.script(**SLOW)
        run_id = daemon.train()
        with watching(daemon, run_id) as stream:
            read_until(stream, "step")
            daemon.process.terminate()
            begin = time.monotonic()
            for _ in stream:
                pass
            assert time.monotonic() - begin < 30
        assert daemon.stop() == 0


@pytest.mark.parametrize("how", ["revoke", "rotate"])
def test_a_token_that_stops_loses_its_streams(ready: Daemon, how: str) -> None:
    with holding(ready.home / "worker.lock"), pair(ready, f"app-{how}") as app:
        body = {"name": "own", "base_model": "tiny", "labels": ["now", "later"]}
        assert app.http.post("/v1/adapters", json=body).status_code == 201
        example = {"input": "a", "label": "now", "split": "train"}
        assert app.http.post("/v1/adapters/own/examples", json=example).status_code == 201
        run_id = app.http.post("/v1/adapters/own/runs").json()["id"]
        with watching(ready, run_id, token=app.token) as stream:
            assert next(stream).name == "snapshot"
            assert ready.http.post(f"/v1/clients/{app.name}/{how}").status_code == 200
            begin = time.monotonic()
            assert list(stream) == []
            assert time.monotonic() - begin < KEEP_ALIVE_SECONDS - 2
        ready.http.post(f"/v1/runs/{run_id}/cancel?client={app.name}")


def test_anothers_run_is_not_watched(ready: Daemon) -> None:
    run_id = ready.train()
    with pair(ready, "stranger") as app:
        found = app.http.get(f"/v1/runs/{run_id}/events")
        missing = app.http.get("/v1/runs/987654/events")
    assert found.status_code == missing.status_code == 404
    assert found.json() == missing.json()
    ready.wait_until_ended(run_id)


def test_places_are_limited_and_come_back(ready: Daemon) -> None:
    with holding(ready.home / "worker.lock"):
        run_id = ready.train()
        path = f"/v1/runs/{run_id}/events"
        with httpx.Client(
            base_url=ready.http.base_url,
            headers=ready.http.headers,
            limits=httpx.Limits(max_connections=STREAMS_A_CLIENT + 2),
            trust_env=False,
        ) as http:
            requests = [http.build_request("GET", path) for _ in range(STREAMS_A_CLIENT)]
            streams = [http.send(request, stream=True) for request in requests]
            assert {stream.status_code for stream in streams} == {200}
            refused = ready.http.get(path)
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) > 0
            assert str(STREAMS_A_CLIENT) in refused.json()["detail"]
            streams[0].close()

            def taken() -> bool:
                with ready.http.stream("GET", path) as response:
                    return response.status_code == 200

            until(taken)
            for stream in streams[1:]:
                stream.close()
        ready.steer(run_id, "cancel")


def test_no_run_and_no_number_are_refused(shared: Daemon) -> None:
    assert shared.http.get("/v1/runs/987654/events").status_code == 404
    assert shared.http.get("/v1/runs/x/events").status_code == 422


def test_idle_streams_say_that_they_live(home: Path) -> None:
    assert KEEP_ALIVE_SECONDS <= 15, "what sits between may close what says nothing for longer"
    environment = {"CHANGED": json.dumps({"service.routes.run_events:KEEP_ALIVE_SECONDS": 1.0})}
    with (
        Daemon(home, program=CHANGED, environment=environment) as ready,
        holding(home / "worker.lock"),
    ):
        ready.create_adapter()
        ready.post_examples()
        run_id = ready.train()
        comments: list[str] = []
        with ready.http.stream("GET", f"/v1/runs/{run_id}/events") as response:
            parts = response.iter_raw()
            begin = time.monotonic()

            def early() -> Iterator[bytes]:
                for part in parts:
                    yield part
                    if b": keep-alive" in part or time.monotonic() - begin > 25:
                        return

            names = [event.name for event in events_of(early(), comments)]
        assert names == ["snapshot"]
        assert comments == [" keep-alive"]
        ready.steer(run_id, "cancel")


def test_deleted_examples_are_told(ready: Daemon) -> None:
    ready.script(**SLOW)
    run_id = ready.train()
    with watching(ready, run_id) as stream:
        read_until(stream, "step")
        example = ready.spec(run_id)["train_example_ids"][0]
        assert ready.http.delete(ready.path(f"/examples/{example}")).status_code == 200
        assert read_until(stream, "forgot").data == {"forgotten": 1}
    ready.wait_for(run_id, lambda run: run["forgotten"] == 1)


@pytest.mark.parametrize("status", ["queued", "running", "paused"])
def test_a_deleted_adapter_ends_its_streams_and_its_worker(ready: Daemon, status: str) -> None:
    ready.script(**SLOW, deaf=True)
    with holding(ready.home / "worker.lock") if status == "queued" else nullcontext():
        run_id = ready.train()
        with watching(ready, run_id) as stream:
            assert next(stream).name == "snapshot"
            if status != "queued":
                read_until(stream, "step")
            if status == "paused":
                ready.steer(run_id, "pause")
                kill(ready.worker_pid())
                ready.wait_for(run_id, lambda run: run["status"] == "paused")
            workers = ready.worker_pids()
            begin = time.monotonic()
            assert ready.http.delete(ready.path()).status_code == 200
            assert "end" not in [event.name for event in stream]
            assert time.monotonic() - begin < 9, "before the 10 s of LORAD_STOP_SECONDS"
        assert not any(is_alive(pid) for pid in workers)
        assert ready.http.get(f"/v1/runs/{run_id}/events").status_code == 404
    until(lambda: not (ready.home / f"runs/{run_id}").exists())
    assert "unhandled" not in ready.log()
    assert ready.http.get("/v1/device").json()["worker"]["state"] != "training"
