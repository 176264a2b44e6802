"""The eraser by itself: when it writes the database anew, and what stands in its way."""

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.eraser import Eraser
from service.home import Home
from service.locks import FileLock
from service.runs.run_feed import RunFeed
from service.runs.supervisor import Supervisor
from service.settings import Settings
from storage import erasures, examples
from storage.database import Database
from storage.examples import NewExample
from storage.scrub import ScrubError
from tests.service.choosers import OldestFirst
from tests.service.daemon import until
from tests.storage.conftest import new_adapter


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home.at(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def database(home: Home) -> Iterator[Database]:
    """A database that is half holes."""
    with Database(home.database) as database:
        adapter = new_adapter(database)
        with database.write() as session:
            rows = examples.add(
                session, adapter, [NewExample(f"{n} " * 200, "now") for n in range(600)]
            )
            for row in rows[:400]:
                session.delete(row)
            erasures.add(session, "examples", adapter.client_id, 400)
        assert database.truncate_log()
        yield database


def supervisor_of(home: Home, database: Database) -> Supervisor:
    settings = Settings(home=home.path)
    return Supervisor(settings, home, database, RunFeed(), OldestFirst())


def run(
    home: Home,
    database: Database,
    seconds: float = 1.0,
    done: Callable[[], bool] | None = None,
    **options: Any,
) -> None:
    """The eraser's thread, until ``done``; where nothing is to happen, for a moment."""
    supervisor = supervisor_of(home, database)
    eraser = Eraser(home, database, supervisor, **options)
    eraser.start()
    if done is None:
        time.sleep(seconds)
    else:
        until(done)
    eraser.stop()


def nothing_pending(database: Database) -> Callable[[], bool]:
    def look() -> bool:
        with database.read() as session:
            return not erasures.pending(session)

    return look


def holes(database: Database) -> float:
    return database.free_share()


def test_in_idle_time_the_file_is_written_anew(home: Home, database: Database) -> None:
    assert holes(database) > 0.2
    size = home.database.stat().st_size
    erased = nothing_pending(database)
    run(home, database, done=lambda: erased() and holes(database) == 0, idle_seconds=0)
    assert home.database.stat().st_size < 0.7 * size
    with database.read() as session:
        assert erasures.pending(session) == []


def test_not_soon_after_a_request(home: Home, database: Database) -> None:
    run(home, database, idle_seconds=300)
    assert holes(database) > 0.2


def test_not_while_a_worker_is_at_work(home: Home, database: Database) -> None:
    lock = FileLock.take(home.worker_lock)
    assert lock is not None
    run(home, database, idle_seconds=0)
    lock.release()
    assert holes(database) > 0.2


def test_not_without_room(home: Home, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    few = SimpleNamespace(free=2 * home.database.stat().st_size)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: few)
    run(home, database, idle_seconds=0)
    assert holes(database) > 0.2


def test_not_for_a_few_holes(home: Home, database: Database) -> None:
    database.vacuum(home.path)
    inode, size = home.database.stat().st_ino, home.database.stat().st_size
    run(home, database, idle_seconds=0)
    assert (home.database.stat().st_ino, home.database.stat().st_size) == (inode, size)


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("disk is full"), OSError(5, "I/O"), RuntimeError("a bug")]
)
def test_what_goes_wrong_leaves_it_pending_and_the_thread_alive(
    home: Home, database: Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database, "erase", failing(error))
        run(home, database, 0.3, idle_seconds=300)
        with database.read() as session:
            assert erasures.pending(session)
    run(home, database, done=nothing_pending(database), idle_seconds=300)


def test_pages_that_cannot_be_zeroed_are_written_anew(
    home: Home, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "erase", failing(ScrubError("a strange page")))
    run(home, database, done=nothing_pending(database), idle_seconds=300)
    assert holes(database) == 0


def test_a_folder_that_resists_is_tried_again(
    home: Home, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home.adapters / "7"
    (folder / "versions").mkdir(parents=True)
    with database.write() as session:
        erasures.add(session, "adapter", 1, 0, ["adapters/7", "runs/8"])
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", failing(PermissionError(13, "denied", "versions")))
        run(home, database, 0.3, idle_seconds=300)
    with database.read() as session:
        assert [one.what for one in erasures.pending(session)] == ["adapter"]  # others are done
    run(home, database, done=nothing_pending(database), idle_seconds=300)
    assert not folder.exists()


def test_deletions_from_a_large_database_are_erased_together(
    home: Home, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[float] = []
    erase = database.erase

    def slow() -> bool:
        attempts.append(time.monotonic())
        time.sleep(0.2)
        return erase()

    monkeypatch.setattr(database, "erase", slow)
    supervisor = supervisor_of(home, database)
    eraser = Eraser(home, database, supervisor)
    eraser.start()
    for _ in range(30):
        with database.write() as session:
            erasures.add(session, "examples", 1, 1)
        eraser.erase_now()
        time.sleep(0.05)
    until(nothing_pending(database))
    eraser.stop()
    assert len(attempts) >= 2
    pauses = [later - earlier for earlier, later in pairwise(attempts)]
    assert min(pauses) >= 0.2 + 4 * 0.2, "a slow attempt is followed by a rest four times as long"


def test_stopping_is_quick(home: Home, database: Database) -> None:
    supervisor = supervisor_of(home, database)
    eraser = Eraser(home, database, supervisor)
    eraser.start()
    until(nothing_pending(database))
    began = time.monotonic()
    eraser.stop()
    assert time.monotonic() - began < 5
    assert "lorad-eraser" not in {thread.name for thread in threading.enumerate()}
