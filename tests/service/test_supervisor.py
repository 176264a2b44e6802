"""Workers that are killed, crash, hang or stop: what becomes of their runs, by real signals."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemon import Daemon, add_stand_in_model, holding, kill, until


@pytest.fixture(scope="module")
def soon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon whose runs go on by themselves after a moment."""
    home = tmp_path_factory.mktemp("soon") / "home"
    add_stand_in_model(home)
    with Daemon(home, environment={"LORAD_RETRY_SECONDS": "0.2"}) as daemon:
        yield daemon


def prepared(daemon: Daemon, name: str, **script: Any) -> Daemon:
    daemon.name = name
    daemon.script(**script)
    daemon.create_adapter()
    daemon.post_examples()
    return daemon


def kinds(daemon: Daemon, run_id: int) -> list[str]:
    """The kinds of the run's own history rows, oldest first, without those of checkpoints."""
    rows = daemon.http.get("/v1/history", params={"adapter": daemon.name}).json()["entries"]
    found = [row["kind"] for row in reversed(rows) if row["run"] == run_id]
    return [kind for kind in found if kind.startswith("run-") and kind != "run-checkpoint"]


def ended(daemon: Daemon, run_id: int) -> dict[str, Any]:
    """The run once it can't go on any more."""
    return daemon.wait_for(run_id, lambda run: run["finished_at"] is not None)


def test_a_killed_worker_is_interrupted_and_goes_on_when_asked(ready: Daemon) -> None:
    ready.script(steps=40, step_seconds=0.1)
    run_id = ready.train()
    ready.wait_for(run_id, lambda run: run["step"] >= 7)
    kill(ready.worker_pid())
    run = ready.wait_until_ended(run_id)
    assert run["status"] == "interrupted"
    assert run["error"].startswith(f"killed by SIGKILL at step {run['step']}; goes on by itself ")
    assert f"from step {run['checkpoint_step']} after " in run["error"]
    assert run["goes_on_at"] > run["created_at"]
    assert run["setbacks"] == {"kills": 1, "crashes": 0, "halvings": 0}
    adapter = ready.adapter()
    assert adapter["current_run"]["id"] == run_id
    assert "killed by SIGKILL" in adapter["not_training_because"]
    response = ready.http.post(ready.path("/runs"), json={"training": {"steps": 3}})
    assert response.status_code == 409
    ready.script(steps=40, step_seconds=0.01)
    assert ready.train() == run_id
    assert ready.run(run_id)["goes_on_at"] is None
    run = ready.wait_until_ended(run_id)
    assert (run["status"], run["version"], run["error"]) == ("completed", 1, None)
    assert run["resumed_from"] >= 5
    assert [step for step, _ in run["losses"]] == list(range(1, 41))


def test_killed_before_its_first_checkpoint_says_so(ready: Daemon) -> None:
    ready.script(steps=40, step_seconds=0.5)
    run_id = ready.train()
    ready.wait_for(run_id, lambda run: run["step"] >= 1)
    kill(ready.worker_pid())
    run = ready.wait_until_ended(run_id)
    assert "goes on by itself from the start" in run["error"]
    assert run["checkpoint_step"] is None


def test_kills_never_fail_a_run_and_three_in_a_row_slow_it(soon: Daemon) -> None:
    prepared(soon, "killed", steps=12, suffers="SIGKILL", suffers_at=8, suffers_times=4)
    run_id = soon.train()
    run = ended(soon, run_id)
    assert (run["status"], run["resumed_from"], run["error"]) == ("completed", 5, None)
    assert run["setbacks"] == {"kills": 0, "crashes": 0, "halvings": 1}
    log = (soon.home / f"runs/{run_id}/worker.log").read_text()
    assert [log.count(f"halved {times} times") for times in (0, 1, 2)] == [3, 2, 0]
    killed = ["run-killed", "run-started"]
    assert kinds(soon, run_id) == [
        "run-queued",
        "run-started",
        *killed * 2,
        "run-slowed",
        *killed * 2,
        "run-completed",
    ]


@pytest.mark.parametrize(
    ("suffers", "cause"),
    [
        ("SIGSEGV", "SIGSEGV; see runs/"),
        ("failed", "a surprise"),
        (5, "exit code 5 without a reason; see runs/"),
    ],
)
def test_three_crashes_at_one_step_fail_it_with_the_cause(
    soon: Daemon, suffers: str | int, cause: str
) -> None:
    prepared(soon, f"crashing-{suffers}".lower(), suffers=suffers, suffers_at=8, suffers_times=3)
    run_id = soon.train()
    run = ended(soon, run_id)
    assert run["status"] == "failed"
    assert run["error"].startswith(f"three times at step 7: {cause}")
    assert run["setbacks"]["crashes"] == 3
    assert run["error"] in soon.adapter()["not_training_because"]
    crashed = ["run-started", "run-crashed"]
    assert kinds(soon, run_id) == ["run-queued", *crashed * 3, "run-failed"]
    assert not (soon.home / f"runs/{run_id}/checkpoints").exists()


def test_two_crashes_do_not_fail_it(soon: Daemon) -> None:
    prepared(soon, "shaky", suffers="SIGBUS", suffers_at=8, suffers_times=2)
    run = ended(soon, soon.train())
    assert (run["status"], run["version"]) == ("completed", 1)
    assert [step for step, _ in run["losses"]] == list(range(1, 13))


def test_crashes_while_loading_fail_it_too(soon: Daemon) -> None:
    prepared(soon, "unloadable", suffers=2, suffers_at=0, suffers_times=3)
    run = ended(soon, soon.train())
    assert run["error"].startswith("three times while loading: exit code 2")


def test_a_failure_whose_cause_would_come_again_is_one_at_once(soon: Daemon) -> None:
    prepared(soon, "hopeless", suffers="failed", suffers_at=8, again=False, suffers_times=9)
    run = ended(soon, soon.train())
    assert (run["status"], run["error"]) == ("failed", "a surprise")


@pytest.mark.parametrize("ending", [76, "SIGTERM"])
def test_a_stop_that_nobody_asked_for_goes_on(soon: Daemon, ending: str | int) -> None:
    prepared(soon, f"stopped-{ending}".lower(), suffers=ending, suffers_at=8, steps=30)
    run_id = soon.train()
    run = ended(soon, run_id)
    assert run["status"] == "completed"
    assert run["setbacks"] == {"kills": 0, "crashes": 0, "halvings": 0}
    assert "run-interrupted" in kinds(soon, run_id)


def test_a_worker_asked_to_stop_is_interrupted_in_order(ready: Daemon) -> None:
    ready.script(steps=400, step_seconds=0.05)
    run_id = ready.train()
    ready.wait_for(run_id, lambda run: run["step"] >= 2)
    os.kill(ready.worker_pid(), signal.SIGTERM)
    run = ready.wait_until_ended(run_id)
    assert run["status"] == "interrupted"
    assert run["error"].startswith(f"stopped by SIGTERM at step {run['step']}; goes on by itself")
    assert run["checkpoint_step"] == run["step"]


def test_a_run_goes_on_from_the_checkpoint_of_a_stop_without_being_asked(soon: Daemon) -> None:
    prepared(soon, "stopping", steps=60, step_seconds=0.05)
    run_id = soon.train()
    soon.wait_for(run_id, lambda run: run["step"] >= 7)
    os.kill(soon.worker_pid(), signal.SIGTERM)
    run = soon.wait_for(run_id, lambda run: run["resumed_from"] is not None)
    assert run["resumed_from"] >= 7


def test_a_failed_run_says_why_and_a_new_one_starts(ready: Daemon) -> None:
    ready.script(fail_at=3)
    run_id = ready.train()
    run = ready.wait_until_ended(run_id)
    assert (run["status"], run["error"]) == ("failed", "the loss is not finite")
    assert run["finished_at"] is not None
    assert "the loss is not finite" in ready.adapter()["not_training_because"]
    ready.script()
    second = ready.train()
    assert second != run_id
    assert ready.wait_until_ended(second)["status"] == "completed"


def test_another_run_need_not_wait_for_one_that_backs_off(ready: Daemon) -> None:
    ready.script(suffers="SIGKILL", suffers_at=3)
    first = ready.train()
    assert ready.wait_until_ended(first)["status"] == "interrupted"
    name = ready.name
    ready.create_adapter(f"{name}-b")
    ready.post_examples(f"{name}-b")
    ready.script()
    second = ready.train(f"{name}-b")
    assert ready.wait_until_ended(second)["status"] == "completed"
    assert ready.run(first)["status"] == "interrupted"


def test_another_holder_of_the_worker_lock_is_waited_for(ready: Daemon) -> None:
    with holding(ready.home / "worker.lock"):
        run_id = ready.train()
        until(lambda: "worker.lock" in (ready.adapter()["not_training_because"] or ""))
        assert ready.run(run_id)["status"] == "queued"
    assert ready.wait_until_ended(run_id)["status"] == "completed"


def test_the_wait_doubles_with_every_kill(home: Path) -> None:
    with Daemon(home, environment={"LORAD_RETRY_SECONDS": "0.5"}) as daemon:
        prepared(daemon, "phone", suffers="SIGKILL", suffers_at=3, suffers_times=3)
        run_id = daemon.train()
        began = time.monotonic()
        run = ended(daemon, run_id)
        assert run["status"] == "completed"
        assert time.monotonic() - began >= 0.5 + 1 + 2
