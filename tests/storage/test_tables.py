"""The file refuses what no schema should have let through."""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from storage import runs
from storage.database import Database
from storage.tables import Adapter
from tests.storage.conftest import new_adapter

GOOD: dict[str, dict[str, Any]] = {
    "clients": {"name": "app", "token_hash": b"\x09" * 32, "created_at": 1},
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
        "labels": None,
        "max_tokens": 64,
        "too_long": "cut",
        "training": "{}",
        "key": b"k" * 32,
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
    "runs": {"adapter_id": 1, "status": "queued", "step": 0, "losses": "[]", "created_at": 1},
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
        "created_at": 1,
    },
}

BAD: list[tuple[str, dict[str, Any]]] = [
    ("clients", {"name": ""}),
    ("clients", {"name": "x" * 65}),
    ("clients", {"name": None}),
    ("clients", {"name": "owner"}),
    ("clients", {"token_hash": b"short"}),
    ("clients", {"token_hash": "t" * 32}),
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
    ("adapters", {"max_tokens": 0}),
    ("adapters", {"too_long": "ignore"}),
    ("adapters", {"training": "[]"}),
    ("adapters", {"key": b"short"}),
    ("adapters", {"created_at": "yesterday"}),
    ("examples", {"adapter_id": 99}),
    ("examples", {"input": ""}),
    ("examples", {"input": "x" * 100_001}),
    ("examples", {"input": "a\0b"}),
    ("examples", {"input": b"bytes"}),
    ("examples", {"input": None}),
    ("examples", {"label": "\0"}),
    ("examples", {"split": "test"}),
    ("examples", {"split": None}),
    ("examples", {"status": "done"}),
    ("examples", {"external_id": ""}),
    ("examples", {"text_hash": b"short"}),
    ("runs", {"adapter_id": 99}),
    ("runs", {"status": "paused"}),
    ("runs", {"step": -1}),
    ("runs", {"total_steps": 0}),
    ("runs", {"losses": "{}"}),
    ("runs", {"engine": "[]"}),
    ("runs", {"exact_resume": 2}),
    ("versions", {"run_id": 99}),
    ("versions", {"number": 0}),
    ("versions", {"verdict": "good"}),
    ("versions", {"metrics": "[]"}),
    ("versions", {"active": 2}),
    ("versions", {"path": ""}),
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
    for status in ("queued", "running", "interrupted"):
        insert(database, "runs", GOOD["runs"] | {"status": status})
        for second in ("queued", "running", "interrupted"):
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


def test_the_id_of_a_deleted_example_is_not_given_again(
    database: Database, adapter: Adapter
) -> None:
    insert(database, "examples", GOOD["examples"])
    with database.write() as session:
        session.execute(text("DELETE FROM examples"))
    insert(database, "examples", GOOD["examples"])
    with database.read() as session:
        assert session.execute(text("SELECT id FROM examples")).scalars().all() == [2]
