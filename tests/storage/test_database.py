import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, select

from storage import clients, examples
from storage.database import Database, DatabaseFileError, ReadOnlyDatabaseError
from storage.examples import NewExample
from storage.tables import Adapter, Client, Example


def pragma(session: Session, name: str) -> object:
    return session.execute(text(f"PRAGMA {name}")).scalar_one()


def test_the_writer_is_durable_and_forgets(database: Database) -> None:
    with database.write() as session:
        assert pragma(session, "journal_mode") == "wal"
        assert pragma(session, "synchronous") == 2  # FULL
        assert pragma(session, "foreign_keys") == 1
        assert pragma(session, "secure_delete") == 1
        assert pragma(session, "busy_timeout") == 5_000


def test_every_write_uses_the_one_prepared_connection(database: Database) -> None:
    connections = set()
    for _ in range(3):
        with database.write() as session:
            connections.add(id(session.connection().connection.driver_connection))
            assert pragma(session, "synchronous") == 2
    assert len(connections) == 1


def test_a_write_begins_immediately(database: Database) -> None:
    other = sqlite3.connect(database.path, timeout=0)
    with (
        database.write(),  # has written nothing yet
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("BEGIN IMMEDIATE")
    other.execute("BEGIN IMMEDIATE")
    other.close()


def test_files_are_private(database: Database, adapter: Adapter) -> None:
    files = list(database.path.parent.glob("lorad.db*"))
    assert {file.name for file in files} == {"lorad.db", "lorad.db-wal", "lorad.db-shm"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_loose_file_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "lorad.db"
    path.touch(mode=0o644)
    with Database(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_failing_block_leaves_nothing(database: Database) -> None:
    def fail_half_way() -> None:
        with database.write() as session:
            session.add(Client(name="half", token_hash=b"\x02" * 32))
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    with database.read() as session:
        assert session.exec(select(Client)).all() == []


def test_readers_can_not_write(database: Database) -> None:
    with database.read() as session:
        session.add(Client(name="reader", token_hash=b"\x02" * 32))
        with pytest.raises(OperationalError, match="readonly"):
            session.flush()


def test_a_reader_keeps_its_snapshot_while_the_writer_commits(
    database: Database, adapter: Adapter
) -> None:
    with database.read() as reading:
        assert examples.counts(reading, adapter.id).train == 0
        with database.write() as writing:
            examples.add(writing, adapter, [NewExample("late", "now", split="train")])
        assert examples.counts(reading, adapter.id).train == 0
    with database.read() as reading:
        assert examples.counts(reading, adapter.id).train == 1


def test_the_worker_reads_and_never_writes(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        [row] = examples.add(session, adapter, [NewExample("hello", "now")])
    with Database.open_readonly(database.path) as readonly:
        with readonly.read() as session:
            assert [text.input for text in examples.load_texts(session, [row.id])] == ["hello"]
        with pytest.raises(ReadOnlyDatabaseError), readonly.write():
            pass


def test_read_only_works_without_a_daemon(tmp_path: Path) -> None:
    Database(tmp_path / "lorad.db").close()
    with Database.open_readonly(tmp_path / "lorad.db") as database, database.read() as session:
        assert session.exec(select(Example)).all() == []


def test_read_only_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(DatabaseFileError, match="does not exist"):
        Database.open_readonly(tmp_path / "lorad.db")
    assert list(tmp_path.iterdir()) == []


def test_another_kind_of_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "lorad.db"
    path.write_bytes(b"this is a text, long enough to be taken for a database header" * 40)
    with pytest.raises(DatabaseFileError, match=r"lorad\.db can't be opened as a database"):
        Database(path)


def test_an_error_never_carries_the_text(database: Database, adapter: Adapter) -> None:
    canary = "canary-7c1"
    with pytest.raises(Exception, match="CHECK") as caught, database.write() as session:
        examples.add(session, adapter, [NewExample("x", canary, external_id="\0")])
    assert canary not in str(caught.value)


def test_concurrent_writers_lose_nothing(database: Database, adapter: Adapter) -> None:
    threads, each = 16, 12
    failures: list[BaseException] = []

    def post(number: int) -> None:
        try:
            for turn in range(each):
                with database.write() as session:
                    examples.add(
                        session,
                        adapter,
                        [NewExample(f"{number} {turn}", "now", external_id=f"{number}-{turn}")],
                    )
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=post, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    with database.read() as session:
        kept = {row.external_id for row in session.exec(select(Example))}
    assert kept == {f"{number}-{turn}" for number in range(threads) for turn in range(each)}


def test_two_processes_share_the_file(database: Database, adapter: Adapter) -> None:
    with Database(database.path) as other:  # its lock is another one, as another process's would be
        failures: list[BaseException] = []

        def count_up(handle: Database) -> None:
            try:
                for _ in range(25):
                    with handle.write() as session:
                        row = session.get(Adapter, adapter.id)
                        assert row is not None
                        row.max_tokens += 1
                        session.add(row)
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=count_up, args=(handle,)) for handle in (database, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        with other.read() as session:
            row = session.get(Adapter, adapter.id)
            assert row is not None
            assert row.max_tokens == 1024 + 50


def test_the_log_is_emptied_once_no_reader_needs_it(database: Database, adapter: Adapter) -> None:
    log = database.path.with_name("lorad.db-wal")

    def add(name: str) -> None:
        with database.write() as session:
            examples.add(session, adapter, [NewExample(name, "now")])

    add("one")
    with database.read() as reading:
        assert examples.counts(reading, adapter.id).bytes > 0
        add("two")  # after the reader's snapshot
        assert not database.truncate_log()
        assert log.stat().st_size > 0
        add("three")  # the writer goes on, with its own patience
        with database.write() as session:
            assert pragma(session, "busy_timeout") == 5_000
    assert database.truncate_log()
    assert log.stat().st_size == 0
    with Database.open_readonly(database.path) as readonly:
        with readonly.read() as session:
            assert len(session.exec(select(Example)).all()) == 3
        with pytest.raises(ReadOnlyDatabaseError):
            readonly.truncate_log()


def test_emptying_the_log_waits_for_a_transaction_under_way(
    database: Database, adapter: Adapter
) -> None:
    inside, emptied = threading.Event(), []

    def empty() -> None:
        inside.wait()
        emptied.append(database.truncate_log())

    thread = threading.Thread(target=empty)
    thread.start()
    with database.write() as session:
        inside.set()
        examples.add(session, adapter, [NewExample("one", "now")])
        thread.join(0.2)
        assert emptied == []
    thread.join()
    assert emptied == [True]


def test_a_write_does_not_wait_for_ever(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.database.WRITER_PATIENCE_SECONDS", 0.2)
    with database.write():
        with (
            ThreadPoolExecutor() as pool,
            pytest.raises(OperationalError, match="another write takes long"),
        ):
            pool.submit(lambda: database.write().__enter__()).result()
        with database.read() as session:  # who reads waits for nobody
            clients.every(session)
    with database.write() as session:  # and the lock is given back
        clients.put(session, "late", b"\x07" * 32)
