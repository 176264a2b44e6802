import pytest
from sqlmodel import Session, select

from storage import adapters, clients, deletion, erasures, examples, history, runs, versions
from storage.counting import ExampleCount
from storage.database import Database
from storage.deletion import Deleted
from storage.examples import NewExample
from storage.ledgers import DailyUsage, Erasure, HistoryEntry, IdempotencyRecord
from storage.tables import Adapter, Client, Example, Run, Version
from tests.storage.conftest import new_adapter


def add(database: Database, adapter: Adapter, count: int) -> list[int]:
    with database.write() as session:
        given = [NewExample(f"t {n}", "now", external_id=f"{n}") for n in range(count)]
        return [row.id for row in examples.add(session, adapter, given)]


def version(
    session: Session, adapter: Adapter, number: int, seen: list[list[int]] | None
) -> Version:
    run = runs.enqueue(session, adapter.id)
    run.status = "completed"
    row = Version(
        adapter_id=adapter.id,
        run_id=run.id,
        path=f"adapters/{adapter.id}/versions/run-{run.id}",
        metrics={},
        manifest={},
        verdict="promoted",
        verdict_reason="-",
        active=number == 1,
        seen=seen,
    )
    assert versions.add(session, row).number == number
    return row


def delete(database: Database, adapter: Adapter, **which: int | str) -> Deleted:
    with database.write() as session:
        row = adapters.by_id(session, adapter.id)
        assert row is not None
        return deletion.delete_examples(session, row, **which)  # type: ignore[arg-type]


def test_versions_are_named_by_what_they_saw(database: Database, adapter: Adapter) -> None:
    ids = add(database, adapter, 10)
    with database.write() as session:
        version(session, adapter, 1, [[ids[0], ids[4]], [ids[8], ids[8]]])
        version(session, adapter, 2, [[ids[5], ids[7]]])
        version(session, adapter, 3, None)  # doesn't know: all that are older than its run
        version(session, adapter, 4, [])
    assert delete(database, adapter, example_id=ids[4]).witnesses.versions == [1, 3]
    assert delete(database, adapter, external_id="5").witnesses.versions == [2, 3]
    everything = delete(database, adapter)
    assert (everything.examples, everything.witnesses.versions) == (8, [1, 2, 3])
    with database.read() as session:
        seen = dict(session.exec(select(Version.number, Version.seen_deleted)).all())
        assert seen == {1: 6, 2: 3, 3: 10, 4: 0}


def test_an_example_younger_than_the_run_was_not_seen(database: Database, adapter: Adapter) -> None:
    ids = add(database, adapter, 2)
    with database.write() as session:
        old = version(session, adapter, 1, None)
        began = session.get(Run, old.run_id)
        waiting = runs.enqueue(session, adapter.id)
        row = session.get(Example, ids[1])
        assert began is not None
        assert row is not None
        row.created_at = waiting.created_at + 1
        run_id = waiting.id
    young = delete(database, adapter, example_id=ids[1])
    assert (young.witnesses.versions, young.witnesses.run_id) == ([], None)
    older = delete(database, adapter, example_id=ids[0])
    assert (older.witnesses.versions, older.witnesses.run_id) == ([1], run_id)


def test_a_shell_goes_without_being_counted_again(database: Database, adapter: Adapter) -> None:
    ids = add(database, adapter, 2)
    with database.write() as session:
        version(session, adapter, 1, [ids])
        shell = session.get(Example, ids[0])
        assert shell is not None
        shell.input = shell.label = shell.text_hash = None
        shell.status = "expired"
    deleted = delete(database, adapter)
    assert deleted.examples == 2
    with database.read() as session:
        assert session.exec(select(Version.seen_deleted)).one() == 1


@pytest.mark.parametrize("which", [{"example_id": 10**6}, {"external_id": "none"}])
def test_what_is_not_there_deletes_nothing(
    database: Database, adapter: Adapter, which: dict[str, int | str]
) -> None:
    add(database, adapter, 2)
    deleted = delete(database, adapter, **which)
    assert (deleted.examples, deleted.erasure.examples) == (0, 0)
    with database.read() as session:
        assert len(session.exec(select(Example)).all()) == 2


def test_another_adapters_example_is_out_of_reach(database: Database, adapter: Adapter) -> None:
    other = new_adapter(database, "other")
    [theirs] = add(database, other, 1)
    assert delete(database, adapter, example_id=theirs).examples == 0
    assert delete(database, adapter, external_id="0").examples == 0
    assert delete(database, adapter).examples == 0
    with database.read() as session:
        assert session.exec(select(Example.id)).all() == [theirs]


def test_the_number_of_a_deleted_version_is_not_given_again(
    database: Database, adapter: Adapter
) -> None:
    with database.write() as session:
        row = version(session, adapter, 1, None)
        erasure = deletion.delete_version(session, adapter, row)
        assert erasure.paths == [row.path]
        assert versions.active(session, adapter.id) is None
        run = runs.enqueue(session, adapter.id)
        next_one = versions.add(
            session,
            Version(
                adapter_id=adapter.id,
                run_id=run.id,
                path="p",
                metrics={},
                manifest={},
                verdict="rejected",
                verdict_reason="-",
            ),
        )
        assert next_one.number == 2


def fill(session: Session, adapter: Adapter, client_id: int) -> None:
    version(session, adapter, 1, None)
    runs.enqueue(session, adapter.id)
    history.add(session, "run-queued", "a run", client_id, adapter.name)
    session.add(
        IdempotencyRecord(
            client_id=client_id,
            adapter_id=adapter.id,
            key=adapter.name,
            digest=None,
            status=201,
            answer={},
        )
    )


def test_an_adapter_goes_whole_and_others_stay_whole(database: Database, adapter: Adapter) -> None:
    other = new_adapter(database, "other")
    add(database, adapter, 3)
    add(database, other, 2)
    with database.write() as session:
        fill(session, adapter, adapter.client_id)
        fill(session, other, other.client_id)
        found = adapters.by_id(session, adapter.id)
        assert found is not None
        ids = [run.id for run in session.exec(select(Run).where(Run.adapter_id == adapter.id))]
        erasure = deletion.delete_adapter(session, found)
    folders = [f"adapters/{adapter.id}", *(f"runs/{one}" for one in ids)]
    assert (erasure.what, erasure.examples, erasure.paths) == ("adapter", 3, folders)
    with database.read() as session:
        for table in (Example, Run, Version, IdempotencyRecord, ExampleCount):
            assert {row.adapter_id for row in session.exec(select(table)).all()} == {other.id}
        assert session.exec(select(Adapter.name)).all() == ["other"]
        told = session.exec(select(HistoryEntry.adapter, HistoryEntry.message)).all()
        assert told == [
            ("other", "a run"),
            (None, "an adapter and its 3 examples were deleted"),
        ]


def test_a_client_goes_whole_and_others_stay_whole(database: Database, adapter: Adapter) -> None:
    add(database, adapter, 2)
    with database.write() as session:
        guest = Client(name="guest", token_hash=b"g" * 32, scopes=["train"])
        session.add(guest)
        session.flush()
        copy = adapter.model_dump(exclude={"id", "client_id", "created_at"})
        theirs = [
            adapters.create(session, Adapter(**copy | {"name": name}, client_id=guest.id))
            for name in ("phone", "b")
        ]
        for one in (*theirs, adapter):
            fill(session, one, one.client_id)
        for client_id in (guest.id, adapter.client_id):
            session.add(DailyUsage(client_id=client_id, day=1, examples=5))
        guest_id = guest.id
    add(database, theirs[0], 4)
    with database.write() as session:
        erasures.add(session, "examples", guest_id, 1)  # an earlier one, pending
        found = clients.find(session, "guest")
        assert found is not None
        ids, erasure = deletion.delete_client(session, found)
    assert ids == [one.id for one in theirs]
    assert erasure.examples == 4
    with database.read() as session:
        assert session.exec(select(Client.name)).all() == ["owner"]
        for table in (Example, Run, Version, IdempotencyRecord, ExampleCount):
            assert {row.adapter_id for row in session.exec(select(table)).all()} == {adapter.id}
        for table in (DailyUsage, IdempotencyRecord):
            owners = {row.client_id for row in session.exec(select(table)).all()}
            assert owners == {adapter.client_id}
        told = session.exec(select(HistoryEntry.client_id, HistoryEntry.message)).all()
        assert told == [
            (adapter.client_id, "a run"),
            (None, "a client, its 2 adapters and their 4 examples were deleted"),
        ]
        assert [one.what for one in session.exec(select(Erasure))] == ["examples", "client"]


def test_a_block_that_fails_deletes_nothing_and_leaves_no_erasure(
    database: Database, adapter: Adapter
) -> None:
    add(database, adapter, 2)

    def fail_after_deleting() -> None:
        with database.write() as session:
            row = adapters.by_id(session, adapter.id)
            assert row is not None
            deletion.delete_adapter(session, row)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_after_deleting()
    with database.read() as session:
        assert len(session.exec(select(Example)).all()) == 2
        assert session.exec(select(Erasure)).all() == []
