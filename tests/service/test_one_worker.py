"""At most one process trains a home, whatever becomes of daemons, workers and process ids."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.service.daemon import SERVE, Daemon, is_alive, kill, until

UNDYING = (str(Path(__file__).with_name("undying_daemon.py")),)


def workers_of(home: Path) -> set[int]:
    """The processes whose command line is that of a worker of this home."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--run" in words and str(home).encode() in words and is_alive(int(folder.name)):
            found.add(int(folder.name))
    return found


def test_the_next_daemon_waits_for_the_worker_of_a_killed_one(home: Path) -> None:
    with Daemon(home, environment={"LORAD_RETRY_SECONDS": "0"}) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        daemon.script(steps=6000, step_seconds=0.3, deaf=True)
        run_id = daemon.train()
        daemon.wait_for(run_id, lambda run: run["step"] >= 6)
        worker = daemon.worker_pid()
        daemon.kill()
        daemon.script(steps=200)
        daemon.start()
        refused = subprocess.run(
            [sys.executable, *SERVE, "--home", str(home), "--port", "0"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert refused.returncode != 0
        assert "another daemon serves" in refused.stderr
        until(lambda: "worker.lock" in (daemon.adapter()["not_training_because"] or ""))
        assert daemon.run(run_id)["status"] == "interrupted"
        assert workers_of(home) == {worker}
        kill(worker)
        while (run := daemon.run(run_id))["status"] != "completed":
            assert len(workers_of(home)) <= 1, run
            time.sleep(0.02)
        assert run["resumed_from"] >= 5
        assert run["step"] == 200


def test_a_process_with_the_id_of_an_earlier_daemon_is_left_alone(own: Daemon) -> None:
    own.script(steps=1000, step_seconds=0.05)
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] >= 2)
    worker = own.worker_pid()
    own.kill()
    kill(worker)
    until(lambda: not is_alive(worker))
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        state = own.home / "daemon.json"
        state.write_text(json.dumps(json.loads(state.read_text()) | {"pid": stranger.pid}))
        for lock in ("daemon.lock", "worker.lock"):
            (own.home / lock).write_text(f"{stranger.pid}\n")
        own.start()
        own.script()
        own.train()
        assert own.wait_until_ended(run_id)["status"] == "completed"
        assert own.stop() == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.slow
def test_a_worker_that_even_a_kill_does_not_end_holds_up_nothing_but_training(home: Path) -> None:
    environment = {"LORAD_STOP_SECONDS": "1"}
    with Daemon(home, program=UNDYING, environment=environment) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        daemon.create_adapter("mail")
        daemon.post_examples("mail")
        daemon.script(steps=10_000, step_seconds=0.05, deaf=True)
        run_id = daemon.train()
        daemon.wait_for(run_id, lambda run: run["step"] >= 6)
        worker = daemon.worker_pid()
        try:
            assert daemon.steer(run_id, "pause").status_code == 202
            second = daemon.train("mail")
            run = daemon.wait_until_ended(run_id)
            assert run["status"] == "paused"
            until(lambda: daemon.adapter("mail")["not_training_because"] is not None)
            why = daemon.adapter("mail")["not_training_because"]
            assert f"worker {worker} was killed and does not end" in why
            step = daemon.run(run_id)["step"]
            time.sleep(1)
            assert daemon.run(run_id)["step"] == step, "it still writes into a run it has left"
            assert daemon.steer(run_id, "resume").status_code == 200
            assert daemon.steer(run_id, "cancel").status_code == 200
            assert daemon.run(second)["status"] == "queued"
            assert workers_of(home) == {worker}
            daemon.script()
        finally:
            kill(worker)
        assert daemon.wait_until_ended(second)["status"] == "completed"
        daemon.script(steps=10_000, step_seconds=0.05, deaf=True)
        third = daemon.train()
        daemon.wait_for(third, lambda run: run["step"] >= 2)
        worker = daemon.worker_pid()
        began = time.monotonic()
        try:
            assert daemon.stop() == 0
            assert time.monotonic() - began < 25
        finally:
            kill(worker)
