"""Example texts like a phone's, rows by the million, and a bare SQLite loop to compare with."""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from service.home import Home
from service.runs.run_spec import SPEC_NAME
from service.versions.files import MANIFEST_NAME
from storage import examples
from storage.database import BUSY_TIMEOUT_MS, Database
from storage.split import split_of, text_hash
from storage.tables import Adapter, Example, Run

LABELS = ("family", "hide", "later", "now")
_ROWS_A_COMMIT = 20_000


def texts() -> Iterator[dict[str, str]]:
    """Without end: the demo's notifications, each made another one by a number."""
    lines = files("service.demo").joinpath("notifications.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for number in itertools.count():
        row = rows[number % len(rows)]
        yield {"input": f"{row['input']} [{number}]", "label": row["label"]}


def take(source: Iterator[dict[str, str]], count: int) -> list[dict[str, str]]:
    """The next ``count`` of them."""
    return list(itertools.islice(source, count))


def fill(home: Path, adapter_id: int, source: Iterator[dict[str, str]], count: int) -> None:
    """Insert ``count`` rows through the storage room; no daemon may be running."""
    with Database(home / "lorad.db") as database:
        with database.read() as session:
            adapter = session.get_one(Adapter, adapter_id)
        for start in range(0, count, _ROWS_A_COMMIT):
            batch = take(source, min(_ROWS_A_COMMIT, count - start))
            with database.write() as session:
                session.execute(insert(Example), [_row(adapter, text) for text in batch])


def finish_a_run(home: Path, adapter_id: int) -> None:
    """Leave what a worker leaves that has trained on all examples; a daemon's start adopts it."""
    house = Home(home)
    with Database(house.database) as database, database.write() as session:
        train = list(examples.ids(session, adapter_id, "train"))
        holdout = list(examples.ids(session, adapter_id, "holdout"))
        run = Run(adapter_id=adapter_id, status="interrupted")
        session.add(run)
        session.flush()
        run_id = run.id
    house.run(run_id).mkdir()
    spec = {"train_example_ids": train, "holdout_example_ids": holdout}
    (house.run(run_id) / SPEC_NAME).write_text(json.dumps(spec))
    measured = {"loss": 1.0, "label_nll": 1.0, "accuracy": 0.5}
    better = {"loss": 0.5, "label_nll": 0.5, "accuracy": 0.75}
    weights = b"weights"
    manifest = {
        "manifest_version": 1,
        "run_id": run_id,
        "adapter_id": adapter_id,
        "base_hash": "bench",
        "steps": 1,
        "exact_resume": True,
        "exact_resume_reason": None,
        "metrics": {
            "holdout": len(holdout),
            "train": len(train),
            "before": measured,
            "after": better,
        },
        "holdout_rows": [
            {"example_id": one, "before": measured, "after": better} for one in holdout
        ],
        "engine": {"engine": "none"},
        "skipped_example_ids": [],
        "files": {"adapter_model.safetensors": hashlib.sha256(weights).hexdigest()},
    }
    folder = home / house.version_path(adapter_id, run_id)
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(weights)
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))


def _row(adapter: Adapter, text: dict[str, str]) -> dict[str, Any]:
    digest = text_hash(adapter.key, text["input"])
    return {
        "adapter_id": adapter.id,
        "input": text["input"],
        "label": text["label"],
        "split": split_of(digest),
        "text_hash": digest,
    }


def database_bytes(home: Path) -> int:
    """Size of the database file; right once a daemon has folded its log into it by ending."""
    return (home / "lorad.db").stat().st_size


def bare_commits_per_second(home: Path, adapter_id: int, given: Sequence[dict[str, str]]) -> float:
    """Commits of one row each with nothing but `sqlite3`, on a copy of the daemon's database.

    The same disk, pragmas, tables, indexes, checks and triggers: what a durable example costs
    without HTTP, validation and an object mapper.
    """
    copy = home.parent / "bare.db"
    with closing(sqlite3.connect(home / "lorad.db")) as original:
        original.execute("VACUUM INTO ?", (str(copy),))
    now = int(time.time() * 1000)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",
            "temp_store = MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}")
        began = time.perf_counter()
        for number, text in enumerate(given):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT INTO examples (adapter_id, input, label, split, status, text_hash, "
                "created_at, changed_at) VALUES (?, ?, ?, 'train', 'pending', ?, ?, ?)",
                (adapter_id, text["input"], text["label"], number.to_bytes(32), now, now),
            )
            connection.execute("COMMIT")
        seconds = time.perf_counter() - began
    for path in copy.parent.glob("bare.db*"):
        path.unlink()
    return round(len(given) / seconds, 1)
