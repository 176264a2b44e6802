"""A daemon that stops, or is killed, while its worker is at work, and the daemon after it."""

from pathlib import Path

from tests.service.daemon import Daemon, holding, is_alive, until


def test_a_stopped_daemon_lets_the_worker_checkpoint_and_the_next_one_goes_on(own: Daemon) -> None:
    own.script(steps=1000, step_seconds=0.05)
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] >= 2)
    worker = own.worker_pid()
    assert own.stop() == 0
    assert not is_alive(worker)
    assert not (own.home / "daemon.json").exists()
    own.script()
    with holding(own.home / "worker.lock"):
        own.start()
        run = own.run(run_id)
        assert run["status"] == "interrupted"
        assert run["error"].startswith(f"the daemon was stopped at step {run['step']}; goes on ")
        assert (run["goes_on_at"], run["setbacks"]["kills"]) == (None, 0)
        assert list((own.home / f"runs/{run_id}/checkpoints").iterdir())
    run = own.wait_for(run_id, lambda run: run["status"] == "completed")
    assert run["resumed_from"] >= 2


def test_a_deaf_worker_is_killed_when_the_daemon_stops(home: Path) -> None:
    with Daemon(home, environment={"LORAD_STOP_SECONDS": "1"}) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        daemon.script(steps=1000, step_seconds=0.05, deaf=True)
        run_id = daemon.train()
        daemon.wait_for(run_id, lambda run: run["step"] >= 2)
        worker = daemon.worker_pid()
        assert daemon.stop() == 0
        assert not is_alive(worker)
        with holding(daemon.home / "worker.lock"):
            daemon.start()
            run = daemon.run(run_id)
            assert "it was killed since it took too long to stop" in run["error"]
            assert (run["status"], run["setbacks"]["kills"]) == ("interrupted", 1)
            assert run["goes_on_at"] is None
            daemon.stop()


def test_a_killed_daemon_takes_its_worker_along_and_that_counts_as_a_kill(own: Daemon) -> None:
    own.script(steps=1000, step_seconds=0.05)
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] >= 2)
    worker = own.worker_pid()
    own.kill()
    until(lambda: not is_alive(worker))
    own.start()
    run = own.run(run_id)
    assert run["status"] == "interrupted"
    assert run["error"].startswith("the daemon was killed at step ")
    assert "; goes on by itself from step " in run["error"]
    assert run["goes_on_at"] is not None
    assert run["setbacks"]["kills"] == 1
    own.script()
    own.train()
    assert own.wait_until_ended(run_id)["status"] == "completed"


def test_a_version_without_a_row_is_adopted_at_start(own: Daemon) -> None:
    """The daemon is killed; its worker, deaf, publishes all the same; the next daemon finds it."""
    own.script(steps=15, step_seconds=0.1, deaf=True)
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] >= 2)
    worker = own.worker_pid()
    own.kill()
    until(lambda: not is_alive(worker))
    assert (own.home / f"adapters/1/versions/run-{run_id:08d}").is_dir()
    own.start()
    run = own.run(run_id)
    assert (run["status"], run["version"]) == ("completed", 1)
    assert own.adapter()["active_version"]["number"] == 1
    assert own.adapter()["examples"]["used"] == 10


def test_a_damaged_version_is_not_adopted_at_start(own: Daemon) -> None:
    own.script(steps=15, step_seconds=0.1, deaf=True, damaged_version=True)
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] >= 2)
    worker = own.worker_pid()
    own.kill()
    until(lambda: not is_alive(worker))
    own.start()
    assert own.run(run_id)["status"] == "interrupted"
    assert own.http.get("/v1/adapters/phone/versions").json()["versions"] == []
    assert "README.md has SHA-256" in own.log()


def test_a_queued_run_is_started_by_the_next_daemon(own: Daemon) -> None:
    with holding(own.home / "worker.lock"):
        run_id = own.train()
        own.stop()
    own.start()
    assert own.wait_until_ended(run_id)["status"] == "completed"
