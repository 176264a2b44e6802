"""The file refuses what no schema should have let through."""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from storage import runs
from storage.database import Database
from storage.ledgers import Night
from storage.tables import Adapter
from tests.storage.conftest import new_adapter

GOOD: dict[str, dict[str, Any]] = {
    "clients": {
        "name": "app",
        "token_hash": b"\x09" * 32,
        "key_id": "k",
        "key": b"k" * 32,
        "scopes": "[]",
        "examples_per_day": None,
        "created_at": 1,
        "paired_at": 1,
    },
    "adapters": {
        "client_id": 1,
        "name": "mail",
        "base_model": "tiny",
        "base_hash": "sha256:00",
        "method": "first_order",
        "rank": 8,
        "alpha": 16.0,
        "targets": "[]",
        "use_rslora": 0,
        "top_layers": 2,
        "labels": None,
        "max_tokens": 64,
        "too_long": "cut",
        "training": "{}",
        "night": "{}",
        "key": b"k" * 32,
        "keep_days": None,
        "max_examples": None,
        "keep_versions": 5,
        "last_version": 0,
        "revision": 1,
        "created_at": 1,
    },
    "examples": {
        "adapter_id": 1,
        "input": "hello",
        "label": "now",
        "split": "train",
        "external_id": None,
        "status": "pending",
        "text_hash": b"h" * 32,
        "created_at": 1,
        "changed_at": 1,
    },
    "runs": {
        "adapter_id": 1,
        "status": "queued",
        "wanted": None,
        "origin": "request",
        "in_window": 0,
        "override": 0,
        "kills": 0,
        "crashes": 0,
        "halvings": 0,
        "forgotten": 0,
        "step": 0,
        "losses": "[]",
        "created_at": 1,
    },
    "versions": {
        "adapter_id": 1,
        "number": 1,
        "run_id": 1,
        "path": "adapters/1/versions/run-00000001",
        "metrics": "{}",
        "manifest": "{}",
        "verdict": "promoted",
        "verdict_reason": "better",
        "active": 1,
        "seen": "[[1,9]]",
        "seen_deleted": 0,
        "created_at": 1,
    },
    "daily_usage": {"client_id": 1, "day": 20000, "examples": 3},
    "idempotency_records": {
        "client_id": 1,
        "adapter_id": 1,
        "key": "a",
        "digest": b"d" * 32,
        "status": 201,
        "answer": "{}",
        "created_at": 1,
    },
    "erasures": {"what": "examples", "examples": 1, "paths": "[]", "requested_at": 1},
    "history": {"client_id": 1, "kind": "run", "message": "it began", "at": 1},
    "schedule": {"id": 1, "windows": "[]", "revision": 1, "changed_at": 1},
    "nights": {"key": "2026-11-30 23:00", "opened_at": 1},
    "night_usage": {"night_id": 1, "adapter_id": 1, "seconds": 1.5},
    "training_pause": {"id": 1, "since": 1, "until": None},
}

BAD: list[tuple[str, dict[str, Any]]] = [
    ("clients", {"name": ""}),
    ("clients", {"name": "x" * 65}),
    ("clients", {"name": None}),
    ("clients", {"name": "owner"}),
    ("clients", {"token_hash": b"short"}),
    ("clients", {"token_hash": "t" * 32}),
    ("clients", {"key": b"short"}),
    ("clients", {"scopes": "{}"}),
    ("clients", {"examples_per_day": 0}),
    ("clients", {"most_bytes": "many"}),
    ("clients", {"most_pending": 1.5}),
    ("adapters", {"keep_days": 0}),
    ("adapters", {"max_examples": 0}),
    ("adapters", {"keep_versions": 0}),
    ("adapters", {"last_version": -1}),
    ("adapters", {"last_version": None}),
    ("adapters", {"revision": 0}),
    ("adapters", {"name": "phone"}),
    ("adapters", {"client_id": 99}),
    ("adapters", {"rank": 0}),
    ("adapters", {"rank": 65}),
    ("adapters", {"rank": "many"}),
    ("adapters", {"alpha": 0.0}),
    ("adapters", {"alpha": float("inf")}),
    ("adapters", {"alpha": float("nan")}),
    ("adapters", {"targets": "{}"}),
    ("adapters", {"targets": "no json"}),
    ("adapters", {"labels": '"now"'}),
    ("adapters", {"use_rslora": 2}),
    ("adapters", {"top_layers": 0}),
    ("adapters", {"top_layers": 1.5}),
    ("adapters", {"top_layers": "all"}),
    ("adapters", {"max_tokens": 0}),
    ("adapters", {"too_long": "ignore"}),
    ("adapters", {"training": "[]"}),
    ("adapters", {"night": "[]"}),
    ("adapters", {"key": b"short"}),
    ("adapters", {"created_at": "yesterday"}),
    ("examples", {"adapter_id": 99}),
    ("examples", {"input": ""}),
    ("examples", {"input": "x" * 100_001}),
    ("examples", {"input": "a\0b"}),
    ("examples", {"input": b"bytes"}),
    ("examples", {"input": None}),
    ("examples", {"label": "\0"}),
    ("examples", {"label": None}),
    ("examples", {"text_hash": None}),
    ("examples", {"status": "expired"}),
    ("examples", {"status": "expired", "input": None, "label": None}),
    ("examples", {"split": "test"}),
    ("examples", {"split": None}),
    ("examples", {"status": "done"}),
    ("examples", {"external_id": ""}),
    ("examples", {"text_hash": b"short"}),
    ("runs", {"adapter_id": 99}),
    ("runs", {"status": "sleeping"}),
    ("runs", {"wanted": "sleep"}),
    ("runs", {"forgotten": -1}),
    ("runs", {"step": -1}),
    ("runs", {"total_steps": 0}),
    ("runs", {"losses": "{}"}),
    ("runs", {"engine": "[]"}),
    ("runs", {"exact_resume": 2}),
    ("runs", {"origin": "dream"}),
    ("runs", {"in_window": 2}),
    ("runs", {"override": 2}),
    ("runs", {"checkpoint_step": -1}),
    ("runs", {"kills": -1}),
    ("runs", {"crashes": -1}),
    ("runs", {"crash_step": -1}),
    ("runs", {"halvings": -1}),
    ("runs", {"not_before": 0}),
    ("runs", {"worked_at": 0}),
    ("runs", {"warm_start": 0}),
    ("versions", {"run_id": 99}),
    ("versions", {"run_id": None}),
    ("versions", {"verdict": "imported"}),
    ("versions", {"activated_at": 0}),
    ("versions", {"activated_by": ""}),
    ("versions", {"number": 0}),
    ("versions", {"verdict": "good"}),
    ("versions", {"metrics": "[]"}),
    ("versions", {"active": 2}),
    ("versions", {"path": ""}),
    ("versions", {"seen": "{}"}),
    ("versions", {"seen_deleted": -1}),
    ("daily_usage", {"client_id": 99}),
    ("daily_usage", {"examples": -1}),
    ("idempotency_records", {"client_id": 99}),
    ("idempotency_records", {"key": ""}),
    ("idempotency_records", {"digest": b"short"}),
    ("idempotency_records", {"answer": "[]"}),
    ("erasures", {"what": "everything"}),
    ("erasures", {"paths": "{}"}),
    ("history", {"client_id": 99}),
    ("history", {"message": ""}),
    ("history", {"message": "x" * 1001}),
    ("schedule", {"id": 2}),
    ("schedule", {"windows": "{}"}),
    ("nights", {"key": ""}),
    ("nights", {"closed_at": 0}),
    ("night_usage", {"night_id": 99}),
    ("night_usage", {"adapter_id": 99}),
    ("night_usage", {"seconds": -1.0}),
    ("training_pause", {"id": 2}),
    ("training_pause", {"until": 0}),
]


def insert(database: Database, table: str, row: dict[str, Any]) -> None:
    columns = ", ".join(row)
    values = ", ".join(f":{column}" for column in row)
    with database.write() as session:
        session.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({values})"), row)


@pytest.fixture
def with_a_run(database: Database, adapter: Adapter) -> Database:
    with database.write() as session:
        run = runs.enqueue(session, adapter.id)
        runs.end(session, run, "completed", None)
        session.add(Night(key="2026-11-29 23:00"))
    return database


@pytest.mark.parametrize("table", GOOD)
def test_a_good_row_goes_in(with_a_run: Database, table: str) -> None:
    insert(with_a_run, table, GOOD[table])


@pytest.mark.parametrize(
    ("table", "change"), BAD, ids=lambda value: str(value)[:40].replace("\0", "NUL")
)
def test_a_bad_row_is_refused(with_a_run: Database, table: str, change: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError):
        insert(with_a_run, table, GOOD[table] | change)


def test_an_adapter_has_one_unfinished_run(database: Database, adapter: Adapter) -> None:
    unfinished = ("queued", "running", "paused", "interrupted")
    for status in unfinished:
        insert(database, "runs", GOOD["runs"] | {"status": status})
        for second in unfinished:
            with pytest.raises(IntegrityError):
                insert(database, "runs", GOOD["runs"] | {"status": second})
        insert(database, "runs", GOOD["runs"] | {"status": "failed"})
        with database.write() as session:
            run = runs.unfinished(session, adapter.id)
            assert run is not None
            runs.end(session, run, "failed", "test")


def test_only_one_run_runs(database: Database, adapter: Adapter) -> None:
    other = new_adapter(database, "mail")
    insert(database, "runs", GOOD["runs"] | {"status": "running"})
    with pytest.raises(IntegrityError):
        insert(database, "runs", GOOD["runs"] | {"status": "running", "adapter_id": other.id})


def test_an_adapter_has_one_active_version(with_a_run: Database) -> None:
    insert(with_a_run, "versions", GOOD["versions"])
    insert(with_a_run, "runs", GOOD["runs"])
    with pytest.raises(IntegrityError):
        insert(with_a_run, "versions", GOOD["versions"] | {"number": 2, "run_id": 2})
    insert(with_a_run, "versions", GOOD["versions"] | {"number": 2, "run_id": 2, "active": 0})


def test_an_expired_example_is_an_empty_shell(database: Database, adapter: Adapter) -> None:
    empty = {"status": "expired", "input": None, "label": None, "text_hash": None}
    insert(database, "examples", GOOD["examples"] | empty)


def test_the_counters_follow_every_change(database: Database, adapter: Adapter) -> None:
    """Against the plain count, over inserts, corrections, moves between states, deletions."""
    changes = [
        "INSERT INTO examples (adapter_id, input, label, split, status, text_hash, created_at, "
        "changed_at) SELECT 1, 'äé' || value, 'now', iif(value % 3, 'train', 'holdout'), 'pending',"
        " zeroblob(32), 1, 1 FROM generate_series",
        "UPDATE examples SET status = 'used' WHERE split = 'train' AND id % 2",
        "UPDATE examples SET input = 'longer by far', label = 'x' WHERE id % 5 = 0",
        "UPDATE examples SET status = 'expired', input = NULL, label = NULL, text_hash = NULL "
        "WHERE id % 7 = 0",
        "DELETE FROM examples WHERE id % 4 = 0",
        "DELETE FROM examples",
    ]
    numbers = (
        "(WITH RECURSIVE n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n "
        "WHERE value < 60) SELECT value FROM n)"
    )
    for change in changes:
        with database.write() as session:
            session.execute(text(change.replace("generate_series", numbers)))
        with database.read() as session:
            counted = session.execute(
                text(
                    "SELECT split, status, examples, bytes FROM example_counts "
                    "WHERE examples > 0 ORDER BY split, status"
                )
            ).all()
            plain = session.execute(
                text(
                    "SELECT split, status, count(*), coalesce(sum(length(CAST(input AS BLOB)) + "
                    "length(CAST(label AS BLOB))), 0) FROM examples GROUP BY split, status"
                )
            ).all()
            assert counted == plain
            assert (
                session.execute(
                    text("SELECT count(*) FROM example_counts WHERE examples = 0 AND bytes <> 0")
                ).scalar_one()
                == 0
            )


def test_the_id_of_a_deleted_example_is_not_given_again(
    database: Database, adapter: Adapter
) -> None:
    insert(database, "examples", GOOD["examples"])
    with database.write() as session:
        session.execute(text("DELETE FROM examples"))
    insert(database, "examples", GOOD["examples"])
    with database.read() as session:
        assert session.execute(text("SELECT id FROM examples")).scalars().all() == [2]
