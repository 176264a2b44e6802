"""The daemon killed at every point of a run's way, and what the next daemon makes of it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.daemon import Daemon, is_alive, until

DYING = (str(Path(__file__).with_name("dying_daemon.py")),)

TRAINING = [
    "service.runs.new_run:write_spec:after",
    "service.runs.supervisor:note:after",
    "service.runs.supervisor:WorkerProcess:after",
    "service.runs.attendance:adopt:before",
    "service.runs.attendance:adopt:after",
    "service.runs.supervisor:finish:before",
]

STEERING = [
    ("pause", "service.routes.runs:steer:after", "interrupted"),
    ("pause", "service.runs.supervisor:Supervisor.stop_run:before", "paused"),
    ("pause", "service.runs.run_closing:note:after", "paused"),
    ("cancel", "service.runs.supervisor:Supervisor.stop_run:before", "cancelled"),
    ("cancel", "service.runs.run_closing:remove_checkpoints:before", "cancelled"),
    ("restart", "service.routes.restart:start_over:before", "cancelled"),
    ("restart", "service.runs.new_run:write_spec:after", "cancelled"),
]


def killed(daemon: Daemon, request: str) -> Daemon:
    """Send a POST that kills the daemon sooner or later; the next daemon."""
    workers = daemon.worker_pids()
    with suppress(httpx.TransportError):  # the answer may or may not get out
        daemon.http.post(request)
    daemon.process.wait(30)
    until(lambda: not any(is_alive(pid) for pid in workers))
    daemon.http.close()
    return Daemon(daemon.home)


def all_runs(daemon: Daemon) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = daemon.http.get(daemon.path("/runs")).json()["runs"]
    return runs


def prepared(home: Path) -> None:
    with Daemon(home) as daemon:
        daemon.create_adapter()
        daemon.post_examples()


def is_whole(daemon: Daemon) -> None:
    """Every run has its end, which agrees with what lies in the home."""
    for run in all_runs(daemon):
        assert run["wanted"] is None
        assert (run["status"] == "completed") == (run["version"] is not None)
        checkpoints = daemon.home / f"runs/{run['id']}/checkpoints"
        until(lambda folder=checkpoints: not folder.exists())
    assert "unhandled" not in daemon.log()


@pytest.mark.slow
@pytest.mark.parametrize("point", TRAINING)
def test_a_training_survives_its_daemons_death(home: Path, point: str) -> None:
    prepared(home)
    dying = Daemon(home, program=DYING, environment={"DIE_AT": point})
    with killed(dying, dying.path("/runs")) as daemon:
        daemon.script()
        runs = all_runs(daemon)
        if not runs:
            daemon.train()
        for run in runs:
            if run["status"] == "interrupted":
                assert daemon.steer(run["id"], "resume").status_code == 200
        [run] = all_runs(daemon)
        done = daemon.wait_until_ended(run["id"])
        assert (done["status"], done["version"]) == ("completed", 1), done
        assert daemon.adapter()["examples"]["used"] == 10
        is_whole(daemon)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "point", "status"), STEERING)
def test_steering_survives_the_daemons_death(
    home: Path, verb: str, point: str, status: str
) -> None:
    prepared(home)
    with Daemon(home) as first:
        first.script(steps=1000, step_seconds=0.02)
        run_id = first.train()
        first.wait_for(run_id, lambda run: run["step"] >= 6)
    dying = Daemon(home, program=DYING, environment={"DIE_AT": point})
    dying.wait_for(run_id, lambda run: run["status"] == "running" and run["step"] >= 11)
    with killed(dying, f"/v1/runs/{run_id}/{verb}") as daemon:
        run = daemon.run(run_id)
        assert run["status"] == status, run["error"]
        daemon.script()
        if run["status"] != "cancelled":
            assert daemon.steer(run_id, "resume").status_code == 200
        elif len(all_runs(daemon)) == 1:
            assert daemon.steer(run_id, "restart").status_code == 202
        newest = all_runs(daemon)[0]["id"]
        assert daemon.wait_until_ended(newest)["status"] == "completed"
        is_whole(daemon)
