"""Deleted texts are searched for in the bytes of every file of the database."""

import random
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlmodel import Session, select

from storage import adapters, deletion, examples, retention
from storage.database import Database
from storage.examples import NewExample
from storage.scrub import ScrubError, scrub
from storage.tables import Adapter, Example
from tests.storage.conftest import new_adapter
from tests.storage.page_bytes import unused_bytes

FAR = 4_000_000_000_000
"""A time, in ms, at which every bound of days is over."""


_CANARY = re.compile("ü[0-9]{7}".encode())


class Store:
    """A database whose every text holds a canary of its own; it knows which still live."""

    def __init__(self, database: Database, seed: int = 0) -> None:
        self.database = database
        self.random = random.Random(seed)
        self.adapter = new_adapter(database)
        self.living: dict[int, tuple[str, list[str]]] = {}
        """``{id: (external id, canaries)}``"""
        self.born: dict[int, int] = {}
        """``{id: from when its age counts}``: an expired example that is corrected begins anew."""
        self.dead: set[str] = set()
        self._numbers = iter(range(10**9))

    def canary(self) -> str:
        return f"«ü{next(self._numbers):07d}{self.random.getrandbits(40):010x}»"

    def new(self, external_id: str | None = None) -> tuple[NewExample, list[str]]:
        text, label = self.canary(), self.canary()
        size = self.random.choice([1, 1, 1, 2, 9, 40, 700])  # 700: about 20 kB, overflow pages
        external_id = external_id or self.canary()
        return NewExample(text * size, label, external_id=external_id), [text, label]

    def add(self, count: int) -> None:
        made = [self.new() for _ in range(count)]
        with self.database.write() as session:
            rows = examples.add(session, self.adapter, [new for new, _ in made])
        for row, (new, canaries) in zip(rows, made, strict=True):
            assert new.external_id is not None
            self.living[row.id] = new.external_id, canaries
            self.born[row.id] = row.created_at

    def some(self, count: int) -> list[int]:
        return self.random.sample(sorted(self.living), min(count, len(self.living)))

    def bury(self, ids: list[int]) -> None:
        for one in ids:
            external_id, canaries = self.living.pop(one)
            self.dead |= {external_id, *canaries}

    def delete_each(self, count: int) -> None:
        ids = self.some(count)
        for one in ids:
            with self.database.write() as session:
                deletion.delete_examples(session, self._attached(session), example_id=one)
        self.bury(ids)

    def delete_together(self, count: int) -> None:
        ids = self.some(count)
        with self.database.write() as session:
            for one in ids:
                external_id = self.living[one][0]
                deletion.delete_examples(session, self._attached(session), external_id=external_id)
        self.bury(ids)

    def delete_all(self) -> None:
        with self.database.write() as session:
            deletion.delete_examples(session, self._attached(session))
        self.bury(list(self.living))

    def correct(self, count: int) -> None:
        for one in self.some(count):
            external_id, old = self.living[one]
            new, canaries = self.new(external_id)
            with self.database.write() as session:
                [row] = examples.add(session, self.adapter, [new])
            assert row.id == one
            if old:
                assert row.created_at == self.born[one]
            else:
                assert row.created_at >= max(self.born.values())
                self.born[one] = row.created_at
            self.dead |= set(old)
            self.living[one] = external_id, canaries

    def expire(self, keep: int) -> None:
        """All but the newest ``keep`` lose their texts; their external ids stay."""
        with self.database.write() as session:
            adapter = self._attached(session)
            adapter.max_examples = max(1, keep)
            retention.expire(session, adapter, FAR)
            adapter.max_examples = None
        texts = [one for one in self.living if self.living[one][1]]
        texts.sort(key=lambda one: (self.born[one], one))
        for one in texts[: -max(1, keep)]:
            external_id, old = self.living[one]
            self.dead |= set(old)
            self.living[one] = external_id, []

    def _attached(self, session: Session) -> Adapter:
        adapter = adapters.by_id(session, self.adapter.id)
        assert adapter is not None
        return adapter

    def files(self) -> dict[str, bytes]:
        folder = self.database.path.parent
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def found(self) -> dict[str, int]:
        """How many dead canaries can be read in each file, whole or by their first half."""
        dead = {canary[1:9].encode() for canary in self.dead}
        found = {
            name: len(dead.intersection(_CANARY.findall(data)))
            for name, data in self.files().items()
        }
        return {name: count for name, count in found.items() if count}

    def check_the_living(self) -> None:
        with self.database.read() as session:
            texts = examples.load_texts(session, sorted(self.living))
        kept = {one: canaries for one, (_, canaries) in self.living.items() if canaries}
        assert [text.id for text in texts] == sorted(kept)
        for text in texts:
            canary, label = kept[text.id]
            assert set(text.input.split("»")) == {canary[:-1], ""}
            assert text.label == label


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """10,000 examples, then deletions of every kind among additions, nothing erased yet."""
    database = Database(tmp_path_factory.mktemp("big") / "lorad.db")
    store = Store(database)
    for _ in range(20):
        store.add(500)
    store.delete_each(300)
    store.correct(300)
    store.delete_together(500)
    store.add(300)
    store.expire(len(store.living) - 400)
    store.delete_each(200)
    return store


def test_ten_thousand_rows_leave_nothing_of_what_was_deleted(big: Store) -> None:
    assert "lorad.db-wal" in big.found()  # what the search is able to find
    assert big.database.truncate_log()
    before = unused_bytes(big.database.path)
    # secure_delete alone: copies of moved rows lie in the middles of pages, and nowhere else.
    assert set(before) == {"middle"}
    assert before["middle"] > 10_000
    assert big.database.erase()
    assert unused_bytes(big.database.path) == {}
    assert big.found() == {}
    assert integrity(big.database.path) == "ok"
    big.check_the_living()


def test_the_erased_does_not_come_back_with_what_is_written_later(big: Store) -> None:
    assert big.database.erase()
    big.add(300)  # rewrites pages that the writer knew before they were zeroed
    big.correct(20)
    dead = set(big.dead)
    assert big.database.erase()
    assert big.found() == {}
    big.delete_all()
    assert dead < big.dead
    assert big.database.erase()
    assert big.found() == {}
    assert unused_bytes(big.database.path) == {}
    assert integrity(big.database.path) == "ok"


def test_a_reader_delays_it_and_reads_what_it_read(tmp_path: Path) -> None:
    with Database(tmp_path / "lorad.db") as database:
        store = Store(database)
        store.add(400)
        reader = sqlite3.connect(database.path, isolation_level=None)
        reader.execute("BEGIN")
        before = reader.execute("SELECT id, input, label FROM examples").fetchall()
        store.delete_each(100)
        store.add(100)
        assert not database.erase()
        assert not database.erase()
        assert store.found()
        assert reader.execute("SELECT id, input, label FROM examples").fetchall() == before
        reader.execute("COMMIT")
        assert database.erase()
        assert store.found() == {}
        # The same reader, with pages of before in its memory, sees what there is now.
        assert [row[0] for row in reader.execute("SELECT id FROM examples ORDER BY id")] == sorted(
            store.living
        )
        reader.close()
        store.check_the_living()


def test_readers_at_work_while_pages_are_zeroed_see_whole_rows(tmp_path: Path) -> None:
    with Database(tmp_path / "lorad.db") as database:
        store = Store(database)
        store.add(600)
        stop, failures, reads = threading.Event(), [], []

        def read() -> None:
            reader = sqlite3.connect(f"file:{database.path}?mode=ro", uri=True)
            reader.execute("PRAGMA cache_size = 2")  # goes to the file for every page
            while not stop.is_set():
                for text, label in reader.execute("SELECT input, label FROM examples"):
                    if not (text.endswith("»") and label.startswith("«ü")):
                        failures.append((text, label))
                reads.append(1)
            reader.close()

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        erased = 0
        for _ in range(20):
            store.delete_each(10)
            store.add(10)
            erased += database.erase()
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(reads) > 3
        assert erased or database.erase()
        store.check_the_living()


@settings(max_examples=10)
@example(seed=0, steps=[("expire", 0), ("correct", 1), ("expire", 0)])  # the corrected is youngest
@given(
    seed=st.integers(0, 10**6),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "delete_each", "delete_together", "correct", "expire"]),
            st.integers(0, 15),
        ),
        max_size=6,
    ),
)
def test_whatever_happens_the_erased_is_gone_and_the_living_lives(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: list[tuple[str, int]]
) -> None:
    with Database(tmp_path_factory.mktemp("db") / "lorad.db") as database:
        store = Store(database, seed)
        store.add(80)
        for verb, count in steps:
            getattr(store, verb)(count)
            if count % 5 == 0:
                assert database.erase()
                assert store.found() == {}
        assert database.erase()
        assert store.found() == {}
        assert unused_bytes(database.path) == {}
        assert integrity(database.path) == "ok"
        store.check_the_living()


def test_a_vacuum_leaves_nothing_either_and_builds_in_the_home(tmp_path: Path) -> None:
    with Database(tmp_path / "lorad.db") as database:
        store = Store(database)
        store.add(2000)
        store.delete_together(1500)
        assert database.erase()
        assert database.free_share() > 0.5
        size = database.path.stat().st_size
        assert database.vacuum(tmp_path)
        assert database.path.stat().st_size < size / 2
        assert database.free_share() == 0
        assert store.found() == {}
        assert {path.name for path in tmp_path.iterdir()} == {
            "lorad.db",
            "lorad.db-wal",
            "lorad.db-shm",
        }
        store.check_the_living()
        store.add(10)
        with sqlite3.connect(database.path, timeout=0) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM examples").fetchone()
            assert not database.vacuum(tmp_path)
            reader.execute("COMMIT")
        assert database.vacuum(tmp_path)


def test_a_file_that_is_not_as_expected_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "auto.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        "PRAGMA auto_vacuum = FULL; CREATE TABLE t (x); INSERT INTO t VALUES ('text');"
    )
    connection.close()
    for data, words in (
        (path.read_bytes(), "auto_vacuum"),
        (b"a long text of another kind of file" * 100, "another kind of file"),
    ):
        path.write_bytes(data)
        with path.open("r+b") as file, pytest.raises(ScrubError, match=words):
            scrub(file.fileno())
        assert path.read_bytes() == data


KILLED = """
import sys
from pathlib import Path
from sqlmodel import select
from storage import adapters, deletion, examples
from storage.database import Database
from storage.examples import NewExample
from storage.scrub import ScrubError, scrub
from storage.tables import Adapter, Example

database = Database(Path(sys.argv[1]))
number = 0
while True:
    with database.write() as session:
        adapter = session.exec(select(Adapter)).one()
        rows = examples.add(
            session, adapter, [NewExample(f"{number} {n} " * 30, "now") for n in range(30)]
        )
        ids = [row.id for row in rows]
    for one in ids[::2]:
        with database.write() as session:
            deletion.delete_examples(session, session.exec(select(Adapter)).one(), example_id=one)
        assert database.erase()
        print(one, flush=True)
    number += 1
"""


def test_a_kill_while_erasing_breaks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lorad.db"
    with Database(path) as database:
        new_adapter(database)
    erased: set[int] = set()
    for lines in (1, 9, 23, 40, 61):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        erased |= {int(child.stdout.readline()) for _ in range(lines)}
        child.kill()
        erased |= {int(line) for line in child.stdout.read().split()}
        child.wait()
        assert integrity(path) == "ok"
        with Database(path) as database, database.read() as session:
            kept = session.exec(select(Example)).all()
            assert not erased & {row.id for row in kept}
            texts = [row.input or "" for row in kept]
            assert all(text == text[: len(text) // 30] * 30 for text in texts)
