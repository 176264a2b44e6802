"""Steering real runs over HTTP: every verb in every state, and the daemon or worker killed amid."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from service.runs.steering import TABLE, VERBS
from tests.service.daemon import Daemon, holding, is_alive, kill, until

SLOW = {"steps": 1000, "step_seconds": 0.05}


def training(daemon: Daemon, **script: Any) -> int:
    daemon.script(**SLOW | script)
    run_id = daemon.train()
    daemon.wait_for(run_id, lambda run: run["step"] >= 2)
    return run_id


def checkpoints(daemon: Daemon, run_id: int) -> list[Path]:
    return list((daemon.home / f"runs/{run_id}/checkpoints").glob("step-*"))


def bring_to(daemon: Daemon, status: str, wanted: str | None) -> int:
    """A run in that state."""
    if status == "running":
        run_id = training(daemon, deaf=True)
        for verb in {None: [], "resume": ["pause", "resume"]}.get(wanted, [wanted]):
            assert daemon.steer(run_id, str(verb)).status_code == 202
        return run_id
    if status == "completed":
        run_id = daemon.train()
    elif status == "failed":
        daemon.script(fail_at=2)
        run_id = daemon.train()
    elif status == "queued":
        run_id = daemon.train()
        assert daemon.run(run_id)["status"] == "queued"
        return run_id
    else:
        run_id = training(daemon)
        if status == "interrupted":
            kill(daemon.worker_pid())
        else:
            assert daemon.steer(run_id, "pause").status_code == 202
            daemon.wait_for(run_id, lambda run: run["status"] == "paused")
            if status == "cancelled":
                assert daemon.steer(run_id, "cancel").status_code == 200
    assert daemon.wait_until_ended(run_id)["status"] == status
    return run_id


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("status", "wanted"), list(TABLE))
def test_every_verb_in_every_state(ready: Daemon, status: Any, wanted: Any, verb: Any) -> None:
    outcome = TABLE[status, wanted][VERBS.index(verb)]
    with holding(ready.home / "worker.lock") if status == "queued" else nullcontext():
        run_id = bring_to(ready, status, wanted)
        before = ready.run(run_id)
        assert (before["status"], before["wanted"]) == (status, wanted)
        ready.script()
        response = ready.steer(run_id, verb)
        answer = response.json()
        if outcome == "refused":
            assert response.status_code == 409
            assert f"run {run_id} is " in answer["detail"]
            answer = ready.run(run_id)
        else:
            assert response.status_code == (202 if answer["wanted"] else 200)
        if outcome in ("refused", "same"):
            assert (answer["status"], answer["wanted"]) == (status, wanted)
            assert answer["error"] == before["error"]
        elif outcome.startswith("ask "):
            assert (answer["status"], answer["wanted"]) == ("running", verb)
        else:
            assert (answer["status"], answer["wanted"]) == (outcome, None)
    if answer["status"] == "cancelled":
        until(lambda: not checkpoints(ready, run_id))
    if answer["status"] == "running":
        kill(ready.worker_pid())
        ends = {"pause": "paused", "cancel": "cancelled", "resume": "completed"}
        run = ready.wait_until_ended(run_id)
        assert run["status"] == ends.get(answer["wanted"], "interrupted")
    if answer["status"] == "queued":
        assert ready.wait_until_ended(run_id)["status"] == "completed"


def test_a_paused_run_goes_on_from_its_checkpoint(ready: Daemon) -> None:
    run_id = training(ready)
    assert ready.steer(run_id, "pause").json()["wanted"] == "pause"
    run = ready.wait_for(run_id, lambda run: run["status"] == "paused")
    assert run["error"].startswith(f"paused at step {run['step']}: pause asked for at 20")
    assert (run["wanted"], run["phase"], run["finished_at"]) == (None, None, None)
    assert run["error"] in ready.adapter()["not_training_because"]
    assert "resume" in ready.adapter()["not_training_because"]
    assert checkpoints(ready, run_id)
    response = ready.http.post(ready.path("/runs"))
    assert response.status_code == 409
    assert "resume it" in response.json()["detail"]
    ready.script(steps=run["step"] + 5)
    assert ready.steer(run_id, "resume").status_code == 200
    done = ready.wait_until_ended(run_id)
    assert (done["status"], done["resumed_from"]) == ("completed", run["step"])
    assert done["error"] is None


def test_a_cancelled_run_leaves_no_checkpoint_and_gives_its_place(ready: Daemon) -> None:
    run_id = training(ready)
    until(lambda: checkpoints(ready, run_id))
    assert ready.steer(run_id, "cancel").status_code == 202
    run = ready.wait_until_ended(run_id)
    assert run["status"] == "cancelled"
    assert run["error"].startswith("cancelled at step ")
    assert run["error"] in ready.adapter()["not_training_because"]
    until(lambda: not (ready.home / f"runs/{run_id}/checkpoints").exists())
    ready.script()
    second = ready.train()
    assert second != run_id
    assert ready.wait_until_ended(second)["status"] == "completed"


def test_a_version_finished_first_wins_over_a_cancel(ready: Daemon) -> None:
    run_id = training(ready, deaf=True, steps=20)
    assert ready.steer(run_id, "cancel").status_code == 202
    run = ready.wait_until_ended(run_id)
    assert (run["status"], run["wanted"], run["version"]) == ("completed", None, 1)


def test_a_worker_deaf_to_a_pause_is_killed(home: Path) -> None:
    with Daemon(home, environment={"LORAD_STOP_SECONDS": "1"}) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        run_id = training(daemon, deaf=True)
        worker = daemon.worker_pid()
        assert daemon.steer(run_id, "pause").status_code == 202
        run = daemon.wait_until_ended(run_id)
        assert run["status"] == "paused"
        assert not is_alive(worker)
        assert f"worker {worker} did not stop in time" in daemon.log()


@pytest.mark.parametrize(
    ("verbs", "becomes"),
    [
        ([], "interrupted"),
        (["pause"], "paused"),
        (["pause", "resume"], "interrupted"),
        (["cancel"], "cancelled"),
    ],
)
def test_a_daemon_killed_amid_does_what_was_wanted_at_its_next_start(
    own: Daemon, verbs: list[str], becomes: str
) -> None:
    run_id = training(own, deaf=True)
    until(lambda: checkpoints(own, run_id))
    for verb in verbs:
        assert own.steer(run_id, verb).status_code == 202
    worker = own.worker_pid()
    own.kill()
    kill(worker)
    until(lambda: not is_alive(worker))
    own.start()
    run = own.run(run_id)
    assert (run["status"], run["wanted"]) == (becomes, None)
    assert bool(checkpoints(own, run_id)) == (becomes != "cancelled")
    own.script()
    if becomes != "cancelled":
        assert own.steer(run_id, "resume").status_code == 200
        assert own.wait_until_ended(run_id)["status"] == "completed"


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_version_found_at_start_wins_over_what_was_wanted(own: Daemon, verb: str) -> None:
    """The worker publishes after its daemon's death, with a pause or a cancel still wanted."""
    run_id = training(own, deaf=True, steps=15, step_seconds=0.1)
    assert own.steer(run_id, verb).status_code == 202
    worker = own.worker_pid()
    own.kill()
    until(lambda: not is_alive(worker))
    own.start()
    run = own.run(run_id)
    assert (run["status"], run["version"]) == ("completed", 1)


def test_a_version_that_comes_after_the_cancel_is_removed(own: Daemon) -> None:
    """Its worker outlives the first daemon; under the second one the run is cancelled."""
    run_id = training(own, deaf=True, steps=60, step_seconds=0.1)
    worker = own.worker_pid()
    own.kill()
    own.start()
    assert own.steer(run_id, "cancel").json()["status"] == "cancelled"
    own.kill()
    until(lambda: not is_alive(worker))
    folder = own.home / f"adapters/1/versions/run-{run_id:08d}"
    assert folder.is_dir()
    own.start()
    assert own.run(run_id)["status"] == "cancelled"
    assert not folder.exists()
    assert not checkpoints(own, run_id)
    assert own.http.get(own.path("/versions")).json()["versions"] == []


def test_a_paused_run_is_not_thrown_away_for_want_of_its_base_model(own: Daemon) -> None:
    run_id = bring_to(own, "paused", None)
    model = own.home / "models" / "tiny"
    model.rename(own.home / "models" / "elsewhere")
    response = own.steer(run_id, "resume")
    assert response.status_code == 409
    assert "tiny" in response.json()["detail"]
    assert own.run(run_id)["status"] == "paused"
    (own.home / "models" / "elsewhere").rename(model)
    own.script()
    assert own.steer(run_id, "resume").status_code == 200
    assert own.wait_until_ended(run_id)["status"] == "completed"


def test_steering_another_clients_or_no_run_is_404(ready: Daemon) -> None:
    for verb in (*VERBS, "restart"):
        response = ready.steer(987_654, verb)
        assert response.status_code == 404
        assert ready.steer(0, verb).status_code == 422


def test_a_repeated_request_is_answered_as_before(ready: Daemon) -> None:
    run_id = training(ready)
    first = ready.steer(run_id, "pause", **{"Idempotency-Key": f"p{run_id}"})
    ready.wait_for(run_id, lambda run: run["status"] == "paused")
    again = ready.steer(run_id, "pause", **{"Idempotency-Key": f"p{run_id}"})
    assert (again.status_code, again.json()) == (202, first.json())
    assert again.headers["Idempotent-Replay"] == "true"
    assert ready.steer(run_id, "resume", **{"Idempotency-Key": f"p{run_id}"}).status_code == 409
    assert ready.run(run_id)["status"] == "paused"
    key = {"Idempotency-Key": f"r{run_id}"}
    restarted = ready.steer(run_id, "restart", **key)
    assert restarted.status_code == 202
    again = ready.steer(run_id, "restart", **key)
    assert again.json() == restarted.json()
    assert again.headers["Location"] == restarted.headers["Location"]
    runs = ready.http.get(ready.path("/runs")).json()["runs"]
    assert [run["id"] for run in runs] == [restarted.json()["id"], run_id]


@pytest.mark.parametrize(
    ("status", "ends"),
    [
        ("queued", "cancelled"),
        ("paused", "cancelled"),
        ("interrupted", "cancelled"),
        ("running", "cancelled"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
    ],
)
def test_a_restart_is_a_new_run_from_zero(ready: Daemon, status: str, ends: str) -> None:
    with holding(ready.home / "worker.lock") if status == "queued" else nullcontext():
        run_id = bring_to(ready, status, None)
        ready.script()
        begin = time.monotonic()
        response = ready.steer(run_id, "restart")
        took = time.monotonic() - begin
    assert response.status_code == 202, response.text
    new = response.json()["id"]
    assert new > run_id
    assert response.headers["Location"] == f"/v1/runs/{new}"
    assert response.json()["status"] == "queued"
    assert took < 9, "a deaf worker, too, is gone before the 10 s of LORAD_STOP_SECONDS"
    assert ready.run(run_id)["status"] == ends
    until(lambda: not checkpoints(ready, run_id))
    done = ready.wait_until_ended(new)
    assert (done["status"], done["resumed_from"], done["error"]) == ("completed", None, None)


def test_a_restart_has_the_options_of_its_run_and_the_examples_of_now(ready: Daemon) -> None:
    run_id = ready.train(training={"seed": 7, "batch_size": 2})
    ready.wait_until_ended(run_id)
    more = {"input": "one more", "label": "later", "split": "train"}
    assert ready.http.post(ready.path("/examples"), json=more).status_code == 201
    new = ready.steer(run_id, "restart").json()["id"]
    old_spec, spec = (ready.spec(one) for one in (run_id, new))
    assert spec["training"] == old_spec["training"]
    assert spec["training"]["seed"] == 7
    assert len(spec["train_example_ids"]) == len(old_spec["train_example_ids"]) + 1


def test_a_restart_of_an_old_run_is_refused_while_a_new_one_is_under_way(ready: Daemon) -> None:
    first = bring_to(ready, "completed", None)
    second = training(ready)
    response = ready.steer(first, "restart")
    assert response.status_code == 409
    assert f"run {second}" in response.json()["detail"]
    assert ready.run(second)["status"] == "running"
