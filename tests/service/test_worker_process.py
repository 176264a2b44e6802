"""The daemon's end of a worker: telling, stopping and killing never wait and never hit another."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.home import Home
from service.runs.worker_process import WorkerProcess
from service.settings import Settings
from tests.service.daemon import ROOT, is_alive


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    home = Home.at(tmp_path / "home")
    home.create()
    home.run(1).mkdir()
    settings = Settings(worker_module="tests.service.sleeping_worker")
    worker = WorkerProcess(settings, home, 1)
    assert next(worker.lines()) == b"ready\n"
    yield worker
    worker.kill()
    worker.close()


def test_a_worker_that_reads_nothing_keeps_nobody_waiting(worker: WorkerProcess) -> None:
    begin = time.monotonic()
    for _ in range(20_000):  # more than a pipe holds
        worker.tell_examples_changed()
    assert time.monotonic() - begin < 60
    worker.kill()
    assert worker.wait() == -signal.SIGKILL


def test_one_that_will_not_stop_is_killed_at_the_shortest_deadline(worker: WorkerProcess) -> None:
    threads = threading.active_count()
    worker.ask_to_stop(60)
    for _ in range(100):
        worker.ask_to_stop(90)
    assert threading.active_count() <= threads + 1
    begin = time.monotonic()
    worker.ask_to_stop(0.3)
    worker.tell_examples_changed()
    assert worker.wait() == -signal.SIGKILL
    assert 0.2 < time.monotonic() - begin < 10


def test_after_its_end_nothing_reaches_whoever_has_its_id_next(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    assert not is_alive(worker.pid)
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda *arguments: pytest.fail("a signal was sent"))
    worker.ask_to_stop(0)
    worker.tell_examples_changed()
    worker.kill()


def test_asking_a_dead_one_that_nobody_has_waited_for_does_no_harm(worker: WorkerProcess) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # its own reaper may have been quicker
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    worker.tell_examples_changed()
    worker.ask_to_stop(60)
    worker.kill()
    assert worker.wait() == -signal.SIGKILL
