"""The first start on a file of schema 2, killed at random instants, again and again."""

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sqlalchemy import text

import storage.schemas
from storage.database import Database
from storage.migrations import SCHEMA_VERSION
from tests.storage.test_migrations import schema_text, set_version

SCHEMAS = Path(storage.schemas.__path__[0])
EXAMPLES = 10_000
TABLES = ("clients", "adapters", "examples", "example_counts", "runs", "history", "sqlite_sequence")

OPENER = """
import sys
from pathlib import Path
from storage.database import Database

print("opening", flush=True)
Database(Path(sys.argv[1]))
print("opened", flush=True)
"""


def schema_2_file(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript((SCHEMAS / "2.sql").read_text())
    connection.executescript(
        f"""
        PRAGMA journal_mode = WAL;
        BEGIN;
        INSERT INTO clients (id, name, key_id, key, scopes, created_at, paired_at)
        VALUES (1, 'owner', 'k', zeroblob(32), '["admin"]', 1, 1);
        INSERT INTO adapters (id, client_id, name, base_model, base_hash, method, rank, alpha,
            targets, use_rslora, max_tokens, too_long, training, key, revision, created_at)
        VALUES (1, 1, 'phone', 'tiny', 'sha256:0', 'first_order', 8, 16.0, '["q_proj"]', 0, 64,
            'cut', '{{}}', zeroblob(32), 1, 7);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {EXAMPLES})
        INSERT INTO examples (id, adapter_id, input, label, split, external_id, status, text_hash,
            created_at, changed_at)
        SELECT i, 1, 'text ' || i || hex(randomblob(30)), 'now',
            iif(i % 5, 'train', 'holdout'), 'mine ' || i, 'pending', randomblob(32), i, i FROM n;
        INSERT INTO history (at, client_id, kind, message) SELECT id, 1, 'run-queued', 'm' || id
        FROM examples WHERE id <= 2000;
        DELETE FROM examples WHERE id = {EXAMPLES};
        COMMIT;
        """
    )
    connection.close()
    set_version(path, 2)


def rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What the file holds in the columns of schema 2."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    old = sqlite3.connect(":memory:")
    old.executescript((SCHEMAS / "2.sql").read_text())
    found = {}
    for table in TABLES:
        columns = [row[1] for row in old.execute(f"PRAGMA table_info({table})")]
        order = "name" if table == "sqlite_sequence" else "1, 2, 3"
        query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}"
        found[table] = connection.execute(query).fetchall()
    old.close()
    connection.close()
    return found | {"sqlite_sequence": [row for row in found["sqlite_sequence"] if row[1]]}


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    [number] = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return int(number)


class Opening:
    """A first start in a process of its own, from the moment that it opens the file."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OPENER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "opening\n"
        self.began = time.monotonic()

    def seconds(self) -> float:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "opened\n"
        seconds = time.monotonic() - self.began
        assert self.process.wait(30) == 0
        return seconds

    def killed(self) -> None:
        self.process.kill()
        self.process.wait()


def test_a_migration_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    original, path = tmp_path / "original.db", tmp_path / "lorad.db"
    schema_2_file(original)
    before = rows(original)
    assert len(before["examples"]) == EXAMPLES - 1
    shutil.copyfile(original, path)
    whole = Opening(path).seconds()
    assert rows(path) == before
    killed_at: list[int] = []
    for seed in range(8):
        if not killed_at or killed_at[-1] == SCHEMA_VERSION:
            for file in tmp_path.glob("lorad.db*"):
                file.unlink()
            shutil.copyfile(original, path)
        opening = Opening(path)
        time.sleep(random.Random(seed).uniform(0, 1.1) * whole)
        opening.killed()
        assert rows(path) == before  # opens the log that the dead process left
        killed_at.append(version(path))
    unfinished = [number for number in killed_at if number < SCHEMA_VERSION]
    assert len(unfinished) >= 3  # else it was killed too late to prove anything
    with Database(path) as database, database.read() as session:
        assert session.execute(text("PRAGMA foreign_key_check")).all() == []
    assert version(path) == SCHEMA_VERSION
    assert rows(path) == before
    assert schema_text(path) == (SCHEMAS / f"{SCHEMA_VERSION}.sql").read_text()
