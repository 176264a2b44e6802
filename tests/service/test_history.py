"""GET /v1/history, and what runs leave in it."""

from typing import Any

from tests.service.apps import pair
from tests.service.daemon import Daemon, kill


def entries(daemon: Daemon, **parameters: Any) -> list[dict[str, Any]]:
    response = daemon.http.get("/v1/history", params=parameters)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["entries"]
    return found


def test_runs_leave_their_history(ready: Daemon) -> None:
    ready.script(steps=1000, step_seconds=0.05)
    run_id = ready.train()
    ready.wait_for(run_id, lambda run: run["step"] >= 5)
    ready.steer(run_id, "pause")
    left = ready.wait_for(run_id, lambda run: run["status"] == "paused")["checkpoint_step"]
    ready.steer(run_id, "resume")
    ready.wait_for(run_id, lambda run: run["checkpoint_step"] > left)
    kill(ready.worker_pid())
    ready.wait_for(run_id, lambda run: run["status"] == "interrupted")
    ready.script(steps=60)
    ready.train()
    ready.wait_until_ended(run_id)
    ready.script(fail_at=2)
    failed = ready.train()
    ready.wait_until_ended(failed)
    found = entries(ready, adapter=ready.name)
    assert [entry["id"] for entry in found] == sorted({e["id"] for e in found}, reverse=True)
    about_runs = [entry for entry in reversed(found) if entry["run"] is not None]
    assert [(entry["kind"], entry["run"]) for entry in about_runs] == [
        ("run-queued", run_id),
        ("run-started", run_id),
        ("run-pause-asked", run_id),
        ("run-checkpoint", run_id),
        ("run-paused", run_id),
        ("run-resumed", run_id),
        ("run-started", run_id),
        ("run-checkpoint", run_id),
        ("run-killed", run_id),
        ("run-resumed", run_id),
        ("run-started", run_id),
        ("run-checkpoint", run_id),
        ("run-completed", run_id),
        ("version-promoted", run_id),
        ("run-queued", failed),
        ("run-started", failed),
        ("run-failed", failed),
    ]
    messages = {entry["kind"]: entry["message"] for entry in about_runs}
    assert "SIGKILL" in messages["run-killed"]
    assert messages["run-failed"] == f"run {failed} failed: the loss is not finite"
    assert messages["version-promoted"].startswith("version 1 promoted: ")
    assert {entry["adapter"] for entry in about_runs} == {ready.name}
    assert [e["run"] for e in entries(ready, adapter=ready.name, kind="run-failed")] == [failed]


def test_several_kinds_may_be_asked_for(ready: Daemon) -> None:
    ready.wait_until_ended(ready.train())
    found = entries(ready, adapter=ready.name, kind=["run-queued", "run-completed"])
    assert [entry["kind"] for entry in found] == ["run-completed", "run-queued"]
    for bad in (["x" * 41], ["x"] * 21):
        response = ready.http.get("/v1/history", params={"kind": bad})
        assert response.status_code == 422, response.text


def test_the_owner_may_read_everyones(ready: Daemon) -> None:
    with pair(ready, "everyones-app") as app:
        body = {"name": "own", "base_model": "tiny", "labels": ["now", "later"]}
        assert app.http.post("/v1/adapters", json=body).status_code == 201
        found = entries(ready, everyone=True, limit=200)
        whose = {(entry["client"], entry["adapter"], entry["kind"]) for entry in found}
        assert ("everyones-app", "own", "adapter-created") in whose
        assert ("owner", ready.name, "adapter-created") in whose
        assert (None, None, "daemon-started") in whose
        assert [entry["id"] for entry in found] == sorted({e["id"] for e in found}, reverse=True)
        own = app.http.get("/v1/history").json()["entries"]
        assert {entry["client"] for entry in own} == {"everyones-app"}
        assert app.http.get("/v1/history?everyone=true").status_code == 403
        both = {"everyone": True, "client": "everyones-app"}
        assert ready.http.get("/v1/history", params=both).status_code == 422


def test_pages_hold_everything_once(ready: Daemon) -> None:
    for _ in range(3):
        ready.wait_until_ended(ready.train())
    everything = entries(ready, limit=200)
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        query = {"limit": 7} | ({} if cursor is None else {"cursor": cursor})
        page = ready.http.get("/v1/history", params=query).json()
        assert len(page["entries"]) <= 7
        found += page["entries"]
        if (cursor := page["next"]) is None:
            break
    assert found == everything
    for bad in ("x", "aGlzdG9yeTp4"):
        response = ready.http.get("/v1/history", params={"cursor": bad})
        assert response.status_code == 422
        assert response.json()["errors"][0]["field"] == "query.cursor"


def test_a_client_sees_its_own_history_and_the_owner_the_daemons(ready: Daemon) -> None:
    ready.wait_until_ended(ready.train())
    with pair(ready, "history-app") as app:
        body = {"name": "own", "base_model": "tiny", "labels": ["now", "later"]}
        assert app.http.post("/v1/adapters", json=body).status_code == 201
        example = {"input": "a", "label": "now", "split": "train"}
        app.http.post("/v1/adapters/own/examples", json=example)
        run_id = app.http.post("/v1/adapters/own/runs").json()["id"]
        response = app.http.get("/v1/history", params={"limit": 200})
        found = response.json()["entries"]
        assert {entry["run"] for entry in found} <= {None, run_id}
        assert {entry["adapter"] for entry in found} <= {None, "own"}
        assert ready.name not in response.text
        assert "daemon-started" not in response.text
        acting = entries(ready, client="history-app", limit=200)
        assert [entry["id"] for entry in acting if entry["run"]] == [
            entry["id"] for entry in found if entry["run"]
        ] or len(acting) >= len(found)
        assert "daemon-started" not in {entry["kind"] for entry in acting}
        assert app.http.get("/v1/history?client=owner").status_code == 403
    own = entries(ready, limit=200)
    assert "daemon-started" in {entry["kind"] for entry in own}
    assert run_id not in {entry["run"] for entry in own}
