"""Runs of long ago go with their folders; those that matter still stay, however old."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlmodel import select

from service.home import Home
from service.runs import old_runs
from service.runs.old_runs import remove_old_runs
from storage import runs, versions
from storage.database import Database
from storage.tables import Adapter, Run, Version
from tests.storage.conftest import new_adapter

KEPT = 3


@pytest.fixture(autouse=True)
def _few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_runs, "KEPT", KEPT)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home.at(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def database(home: Home) -> Iterator[Database]:
    with Database(home.database) as database:
        yield database


def make_runs(home: Home, database: Database, adapter: Adapter, count: int) -> list[int]:
    made = []
    for number in range(count):
        with database.write() as session:
            run = runs.enqueue(session, adapter.id)
            runs.end(session, run, ("completed", "failed", "cancelled")[number % 3], None)
        home.run(run.id).mkdir()
        (home.run(run.id) / "spec.json").write_text("{}")
        made.append(run.id)
    return made


def left(home: Home, database: Database) -> tuple[set[int], set[int]]:
    """The ids of the rows, and of the folders."""
    with database.read() as session:
        rows = set(session.exec(select(Run.id)))
    return rows, {int(path.name) for path in home.runs.iterdir()}


def test_the_newest_of_each_adapter_stay(home: Home, database: Database) -> None:
    phone, mail = new_adapter(database), new_adapter(database, "mail")
    older = make_runs(home, database, phone, 5)
    of_mail = make_runs(home, database, mail, 2)
    newer = make_runs(home, database, phone, 1)
    remove_old_runs(home, database, threading.Event())
    kept = {*older[-2:], *newer, *of_mail}
    assert left(home, database) == (kept, kept)


def test_one_of_a_version_and_an_unfinished_one_stay(
    home: Home, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_runs, "KEPT", 0)
    adapter = new_adapter(database)
    old = make_runs(home, database, adapter, 2)
    with database.write() as session:
        path = f"adapters/1/versions/run-{old[0]:08d}"
        version = Version(
            adapter_id=adapter.id,
            run_id=old[0],
            path=path,
            metrics={},
            manifest={},
            verdict="insufficient",
            verdict_reason="because",
        )
        versions.add(session, version)
        paused = runs.enqueue(session, adapter.id)
        runs.end(session, paused, "paused", "because")
    home.run(paused.id).mkdir()
    remove_old_runs(home, database, threading.Event())
    kept = {old[0], paused.id}
    assert left(home, database) == (kept, kept)


def test_a_folder_that_is_gone_already_hinders_nothing_and_one_that_resists_keeps_its_row(
    home: Home, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_runs(home, database, new_adapter(database), KEPT + 2)
    (home.run(made[0]) / "spec.json").unlink()
    home.run(made[0]).rmdir()  # a daemon was killed before it could delete the row

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", refuse)
        remove_old_runs(home, database, threading.Event())
    assert left(home, database) == ({*made[1:]}, {*made[1:]})
    remove_old_runs(home, database, threading.Event())
    assert left(home, database) == ({*made[2:]}, {*made[2:]})


def test_a_daemon_that_ends_is_not_kept_waiting(home: Home, database: Database) -> None:
    made = make_runs(home, database, new_adapter(database), KEPT + 2)
    stopping = threading.Event()
    stopping.set()
    remove_old_runs(home, database, stopping)
    assert left(home, database) == (set(made), set(made))
