import pytest

from storage import clients, runs, versions
from storage.adapters import AdapterExistsError
from storage.database import Database
from storage.tables import Adapter, Version
from tests.storage.conftest import new_adapter


def finished_version(database: Database, adapter: Adapter, *, active: bool) -> Version:
    with database.write() as session:
        run = runs.enqueue(session, adapter.id)
        runs.end(session, run, "completed", None)
        return versions.add(
            session,
            Version(
                adapter_id=adapter.id,
                run_id=run.id,
                path=f"run-{run.id}",
                metrics={},
                manifest={},
                verdict="promoted" if active else "rejected",
                verdict_reason="because",
                active=active,
            ),
        )


def test_versions_count_up_per_adapter_and_the_newest_promoted_is_active(
    database: Database, adapter: Adapter
) -> None:
    other = new_adapter(database, "mail")
    made = [finished_version(database, adapter, active=active) for active in (True, True, False)]
    assert [version.number for version in made] == [1, 2, 3]
    assert finished_version(database, other, active=True).number == 1
    with database.read() as session:
        active = versions.active(session, adapter.id)
        assert active is not None
        assert active.number == 2
        listed = versions.page(session, adapter.id, before=None, limit=9)
        assert [(version.number, version.active) for version in listed] == [
            (3, False),
            (2, True),
            (1, False),
        ]


def test_begun_runs_go_first(database: Database, adapter: Adapter) -> None:
    other = new_adapter(database, "mail")
    with database.write() as session:
        begun = runs.enqueue(session, adapter.id)
        runs.start(session, begun)
        runs.end(session, begun, "interrupted", "killed")
        fresh = runs.enqueue(session, other.id)
        assert list(runs.waiting(session)) == [begun, fresh]
        runs.end(session, begun, "paused", "asked for")
        assert list(runs.waiting(session)) == [fresh]
        runs.requeue(session, begun)
        assert list(runs.waiting(session)) == [begun, fresh]


def test_finished_and_vanished_runs_are_told_from_the_others(
    database: Database, adapter: Adapter
) -> None:
    other = new_adapter(database, "mail")
    with database.write() as session:
        done = runs.enqueue(session, adapter.id)
        runs.end(session, done, "cancelled", "because")
        paused = runs.enqueue(session, other.id)
        runs.end(session, paused, "paused", "because")
        assert runs.finished(session, [done.id, paused.id, 99]) == {done.id, 99}
        assert done.finished_at is not None
        assert paused.finished_at is None


def test_runs_are_paged_newest_first(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        for _ in range(5):
            runs.end(session, runs.enqueue(session, adapter.id), "failed", "because")
    with database.read() as session:
        first = runs.page(session, adapter.id, before=None, limit=3)
        assert [run.id for run in first] == [5, 4, 3]
        assert [run.id for run in runs.page(session, adapter.id, before=3, limit=3)] == [2, 1]


def test_another_client_finds_nothing(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        stranger = clients.put(session, "stranger", b"\x07" * 32)
        run = runs.enqueue(session, adapter.id)
    with database.read() as session:
        assert runs.find(session, adapter.client_id, run.id) is not None
        assert runs.find(session, stranger.id, run.id) is None


def test_a_name_is_taken_once(database: Database, adapter: Adapter) -> None:
    with pytest.raises(AdapterExistsError):
        new_adapter(database, adapter.name)


def test_putting_a_client_again_changes_its_token(database: Database) -> None:
    with database.write() as session:
        first = clients.put(session, "app", b"\x01" * 32)
        second = clients.put(session, "app", b"\x02" * 32)
        assert first.id == second.id
        assert [client.token_hash for client in clients.every(session)] == [b"\x02" * 32]


def test_one_version_is_active_by_promotion_or_by_decision(
    database: Database, adapter: Adapter
) -> None:
    for active in (True, False, True):
        finished_version(database, adapter, active=active)
    with database.write() as session:
        old = versions.find(session, adapter.id, 2)
        assert old is not None
        assert (old.activated_at, old.activated_by) == (None, None)
        versions.activate(session, old, by="mail")
    with database.read() as session:
        rows = versions.page(session, adapter.id, before=None, limit=9)
        assert [(row.number, row.active, row.activated_by) for row in rows] == [
            (3, False, None),
            (2, True, "mail"),
            (1, False, None),
        ]
        assert all(row.activated_at for row in rows)
    with database.write() as session:
        versions.deactivate(session, versions.active(session, adapter.id) or rows[0])
    with database.read() as session:
        assert versions.active(session, adapter.id) is None


def test_the_newest_the_active_and_the_needed_stay(database: Database, adapter: Adapter) -> None:
    other = new_adapter(database, "mail")
    for number in range(1, 7):
        finished_version(database, adapter, active=number == 2)
        finished_version(database, other, active=False)
    with database.read() as session:
        for keep, needed, going in (
            (2, (), [4, 3, 1]),
            (2, ("run-7",), [3, 1]),  # the adapters' runs take turns: version 4
            (1, (), [5, 4, 3, 1]),
            (6, (), []),
        ):
            found = versions.beyond(session, adapter.id, keep, needed)
            assert [row.number for row in found] == going
