from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlmodel import Session, select

from storage import erasures, examples, retention, runs
from storage.database import Database
from storage.examples import NewExample
from storage.ledgers import Erasure, IdempotencyRecord
from storage.tables import Adapter, Example, Version
from tests.storage.conftest import new_adapter

DAY = 24 * 60 * 60 * 1000
NOW = 2_000_000_000_000


def add(database: Database, adapter: Adapter, ages: list[int]) -> list[int]:
    """Examples that came so many days before `NOW`; their ids."""
    with database.write() as session:
        given = [
            NewExample(f"text {n}", "now", "train", external_id=f"e{n}") for n in range(len(ages))
        ]
        rows = examples.add(session, adapter, given)
        for row, age in zip(rows, ages, strict=True):
            row.created_at = row.changed_at = NOW - age * DAY
        return [row.id for row in rows]


def kept(database: Database) -> list[int]:
    with database.read() as session:
        rows = session.exec(select(Example).where(Example.status != "expired")).all()
        return sorted(row.id for row in rows)


def expire(database: Database, adapter: Adapter, most: int | None = None) -> int:
    with database.write() as session:
        return retention.expire(session, adapter, NOW, most=most)


def test_what_is_older_than_keep_days_becomes_a_shell(database: Database, adapter: Adapter) -> None:
    ids = add(database, adapter, [8, 7, 6, 9])
    adapter.keep_days = 7
    assert expire(database, adapter) == 2
    assert kept(database) == ids[1:3]
    with database.read() as session:
        shell = session.get(Example, ids[0])
        assert shell is not None
        assert (shell.input, shell.label, shell.text_hash) == (None, None, None)
        assert (shell.status, shell.external_id, shell.changed_at) == ("expired", "e0", NOW)
        counts = examples.counts(session, adapter.id)
        assert (counts.train, counts.expired) == (2, 2)
        assert counts.bytes == 2 * len("text 0now")
    assert expire(database, adapter) == 0


def test_max_examples_keeps_the_newest_by_age_not_by_id(
    database: Database, adapter: Adapter
) -> None:
    ids = add(database, adapter, [1, 5, 2, 4, 3])
    adapter.max_examples = 3
    assert expire(database, adapter) == 2
    assert kept(database) == sorted([ids[0], ids[2], ids[4]])


def test_no_bound_expires_nothing(database: Database, adapter: Adapter) -> None:
    ids = add(database, adapter, [3000, 1])
    assert expire(database, adapter) == 0
    assert kept(database) == ids


def test_another_adapters_examples_stay(database: Database, adapter: Adapter) -> None:
    other = new_adapter(database, "other")
    add(database, adapter, [9, 9])
    theirs = add(database, other, [9, 9])
    adapter.keep_days, adapter.max_examples = 1, 1
    assert expire(database, adapter) == 2
    assert kept(database) == theirs


def test_batches_expire_the_oldest_first(database: Database, adapter: Adapter) -> None:
    ids = add(database, adapter, [10, 30, 20, 0])
    adapter.keep_days = 5
    assert expire(database, adapter, most=2) == 2
    assert kept(database) == [ids[0], ids[3]]
    assert expire(database, adapter, most=2) == 1
    assert expire(database, adapter, most=2) == 0


def test_expiry_counts_for_versions_records_and_erasures(
    database: Database, adapter: Adapter
) -> None:
    ids = add(database, adapter, [9, 9, 1])
    with database.write() as session:
        for number, seen in enumerate([[[ids[0], ids[1]]], [[ids[2], ids[2]]], None]):
            run = runs.enqueue(session, adapter.id)
            run.status = "completed"
            run.created_at = NOW
            session.add(
                Version(
                    adapter_id=adapter.id,
                    number=number + 1,
                    run_id=run.id,
                    path=f"{number}",
                    metrics={},
                    manifest={},
                    verdict="rejected",
                    verdict_reason="-",
                    seen=seen,
                )
            )
            session.flush()
        session.add(
            IdempotencyRecord(
                client_id=adapter.client_id,
                adapter_id=adapter.id,
                key="k",
                digest=b"d" * 32,
                status=201,
                answer={},
            )
        )
    adapter.keep_days = 5
    for age in (0, 1):  # the second erasure is counted into the first, which is pending
        assert expire(database, adapter, most=1) == 1, age
    with database.read() as session:
        versions = session.exec(select(Version).order_by("number")).all()
        assert [version.seen_deleted for version in versions] == [2, 0, 2]
        [erasure] = session.exec(select(Erasure)).all()
        assert (erasure.what, erasure.examples, erasure.erased_at) == ("retention", 2, None)
        assert session.exec(select(IdempotencyRecord.digest)).all() == [None]


def test_a_shell_goes_after_its_days(database: Database, adapter: Adapter) -> None:
    ids = add(database, adapter, [9, 8, 0])
    adapter.keep_days = 5
    expire(database, adapter)
    later = NOW + retention.SHELL_DAYS * DAY
    with database.read() as session:
        assert retention.old_shells(session, adapter.id, later, 10) == []
        old = retention.old_shells(session, adapter.id, later + 1, 10)
        assert sorted(old) == ids[:2]
        assert len(retention.old_shells(session, adapter.id, later + 1, 1)) == 1
    with database.write() as session:  # the app sends the first one again before it goes
        examples.add(session, adapter, [NewExample("back", "now", "train", external_id="e0")])
    with database.write() as session:
        retention.drop_shells(session, adapter, old)
    with database.read() as session:
        rows = session.exec(select(Example)).all()
        assert {row.id: row.input for row in rows} == {ids[0]: "back", ids[2]: "text 2"}


def test_a_finished_run_leaves_shells_alone(database: Database, adapter: Adapter) -> None:
    ids = add(database, adapter, [9, 1])
    adapter.keep_days = 5
    expire(database, adapter)
    with database.write() as session:
        examples.mark_used(session, ids, unchanged_since=NOW + DAY)
    with database.read() as session:
        found = session.exec(select(Example.status).order_by("id")).all()
        assert found == ["expired", "used"]


def test_an_erasure_that_is_done_is_not_grown(database: Database, adapter: Adapter) -> None:
    add(database, adapter, [9, 8])
    adapter.keep_days = 5
    expire(database, adapter, most=1)
    with database.write() as session:
        erasures.finish(session, [one.id for one in erasures.pending(session)])
    expire(database, adapter)
    with database.read() as session:
        assert len(session.exec(select(Erasure)).all()) == 2
        assert len(erasures.pending(session)) == 1


def plan(session: Session, query: str) -> str:
    rows = session.execute(text(f"EXPLAIN QUERY PLAN {query}")).all()
    return " ".join(str(row[-1]) for row in rows)


def test_the_search_for_the_oldest_uses_the_index(
    database: Database, adapter: Adapter, caplog: pytest.LogCaptureFixture
) -> None:
    add(database, adapter, [9, 8])
    adapter.keep_days, adapter.max_examples = 1, 1
    statements: list[str] = []
    with database.write() as session:
        driver = session.connection().connection.driver_connection
        assert driver is not None
        driver.set_trace_callback(statements.append)
        retention.expire(session, adapter, NOW)
        driver.set_trace_callback(None)
        reading = [one for one in statements if one.startswith("SELECT") and "FROM examples" in one]
        assert len(reading) == 2
        for one in reading:
            assert "examples_by_age" in plan(session, one)
            assert "TEMP B-TREE" not in plan(session, one)


@given(
    ages=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    keep_days=st.none() | st.integers(1, 40),
    max_examples=st.none() | st.integers(1, 20),
    most=st.integers(1, 40),
)
def test_what_is_kept_is_the_newest_and_young_enough(
    tmp_path_factory: pytest.TempPathFactory,
    ages: list[int],
    keep_days: int | None,
    max_examples: int | None,
    most: int,
) -> None:
    with Database(tmp_path_factory.mktemp("db") / "lorad.db") as database:
        adapter = new_adapter(database)
        ids = add(database, adapter, ages)
        adapter.keep_days, adapter.max_examples = keep_days, max_examples
        counts = []
        while count := expire(database, adapter, most=most):
            counts.append(count)
        by_age = sorted(zip(ages, [-one for one in ids], strict=True))
        expected = [-one for age, one in by_age if keep_days is None or age <= keep_days]
        assert kept(database) == sorted(expected[:max_examples])
        assert all(first == most for first, _ in pairwise(counts))
        assert sum(counts) == len(ids) - len(kept(database))
