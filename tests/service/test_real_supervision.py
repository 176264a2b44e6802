"""The real worker under everything that may befall it: its run goes on by itself, and exactly."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemon import Daemon, add_tiny_model, is_alive, kill, until

STEPS = 150
TRAINING = {"steps": STEPS, "learning_rate": 0.01, "seed": 3}
ENVIRONMENT = {"LORAD_RETRY_SECONDS": "0.5", "LORAD_HANG_SECONDS": "8"}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("real")
    home = folder / "home"
    add_tiny_model(home)
    with Daemon(home, worker="trainer.worker", environment=ENVIRONMENT) as daemon:
        daemon.create_adapter("phone", training=TRAINING)
        batch = [
            {"input": f"message {number} {label}", "label": label, "split": split}
            for split, numbers in (("train", range(24)), ("holdout", range(100, 116)))
            for number in numbers
            for label in ("now", "later")
        ]
        posted = daemon.http.post("/v1/adapters/phone/examples", json={"examples": batch})
        assert posted.status_code == 201
        yield daemon


def completed(daemon: Daemon, run_id: int) -> dict[str, Any]:
    run = daemon.wait_for(run_id, lambda run: run["finished_at"] is not None, seconds=240)
    assert (run["status"], run["error"]) == ("completed", None), run
    return run


def weights(daemon: Daemon, run_id: int) -> bytes:
    path = f"adapters/1/versions/run-{run_id:08d}/adapter_model.safetensors"
    return (daemon.home / path).read_bytes()


def at_step(daemon: Daemon, run_id: int, least: int) -> int:
    """The worker's id, once it has begun anew and come that far."""
    daemon.wait_for(
        run_id, lambda run: run["status"] == "running" and run["step"] >= least, seconds=120
    )
    return daemon.worker_pid()


@pytest.mark.slow
def test_a_run_that_suffers_everything_ends_like_one_that_suffers_nothing(real: Daemon) -> None:
    undisturbed = completed(real, first := real.train("phone"))
    run_id = real.train("phone")
    worker = at_step(real, run_id, 15)
    kill(worker)  # as Android does
    until(lambda: not is_alive(worker))
    worker = at_step(real, run_id, 30)
    os.kill(worker, signal.SIGSEGV)
    until(lambda: not is_alive(worker))
    worker = at_step(real, run_id, 45)
    os.kill(worker, signal.SIGTERM)  # somebody else than us asks it to stop
    until(lambda: not is_alive(worker))
    worker = at_step(real, run_id, 60)
    os.kill(worker, signal.SIGSTOP)  # it hangs
    until(lambda: not is_alive(worker), seconds=60)
    worker = at_step(real, run_id, 75)
    real.kill()  # the daemon: its worker sees the end of its standard input
    until(lambda: not is_alive(worker))
    left = newest_checkpoint(real.home / f"runs/{run_id}/checkpoints")
    real.start()
    run = completed(real, run_id)
    assert run["resumed_from"] == left
    assert left >= 75, "the worker of a killed daemon leaves a checkpoint of its last step"
    losses = undisturbed["losses"]
    assert [step for step, _ in losses] == list(range(1, STEPS + 1))
    # What a worker says after its daemon's death is heard by nobody, and lies in its checkpoint.
    assert run["losses"] == [one for one in losses if one in run["losses"]]
    unheard = [step for step, loss in losses if [step, loss] not in run["losses"]]
    assert all(75 <= step <= left for step in unheard), unheard
    assert weights(real, run_id) == weights(real, first)
    version = real.http.get(f"/v1/adapters/phone/versions/{run['version']}").json()
    assert version["exact_resume"]
    rows = real.http.get("/v1/history", params={"adapter": "phone"}).json()["entries"]
    kinds = [row["kind"] for row in rows if row["run"] == run_id]
    assert {"run-killed", "run-crashed", "run-interrupted", "run-hung"} <= set(kinds)
    assert kinds.count("run-killed") == 2  # the worker, and the daemon


def newest_checkpoint(folder: Path) -> int:
    return max(int(path.name[5:13]) for path in folder.glob("step-*"))
