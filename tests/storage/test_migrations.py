import json
import re
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

import storage.schemas
from storage import migrations
from storage.database import Database
from storage.migrations import SCHEMA_VERSION, SchemaVersionError

SCHEMAS = Path(storage.schemas.__path__[0])


def schema_text(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
            "ORDER BY type = 'trigger', type DESC, name"
        )
        statements = [re.sub(r"[ \t]+\n", "\n", row[0].strip()) + ";" for row in rows]
    connection.close()
    return "\n\n".join(statements) + "\n"


def set_version(path: Path, number: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {number}")
    connection.close()


def test_a_new_file_has_todays_schema(tmp_path: Path) -> None:
    """The schema on file can't change without a new number and a migration to it."""
    Database(tmp_path / "lorad.db").close()
    assert schema_text(tmp_path / "lorad.db") == (SCHEMAS / f"{SCHEMA_VERSION}.sql").read_text()


@pytest.mark.parametrize("older", range(1, SCHEMA_VERSION + 1))
def test_every_older_file_becomes_todays(tmp_path: Path, older: int) -> None:
    path = tmp_path / "lorad.db"
    connection = sqlite3.connect(path)
    connection.executescript((SCHEMAS / f"{older}.sql").read_text())
    connection.close()
    set_version(path, older)
    Database(path).close()
    assert schema_text(path) == (SCHEMAS / f"{SCHEMA_VERSION}.sql").read_text()


def test_a_newer_file_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "lorad.db"
    Database(path).close()
    set_version(path, SCHEMA_VERSION + 1)
    for opener in (Database, Database.open_readonly):
        with pytest.raises(SchemaVersionError) as caught:
            opener(path)
        assert f"schema {SCHEMA_VERSION + 1}" in str(caught.value)
        assert str(SCHEMA_VERSION) in str(caught.value)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)
    connection.close()


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lorad.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    with pytest.raises(SchemaVersionError, match="isn't lorad's"):
        Database(path)


def test_read_only_never_migrates(tmp_path: Path) -> None:
    path = tmp_path / "lorad.db"
    Database(path).close()
    set_version(path, 0)
    with pytest.raises(SchemaVersionError, match="schema 0"):
        Database.open_readonly(path)


def test_a_step_that_fails_leaves_the_step_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lorad.db"
    Database(path).close()

    def add_column(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE runs ADD COLUMN note TEXT"))

    def break_half_way(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE half (x)"))
        raise RuntimeError

    steps = {SCHEMA_VERSION + 1: add_column, SCHEMA_VERSION + 2: break_half_way}
    monkeypatch.setattr(migrations, "MIGRATIONS", steps)
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", SCHEMA_VERSION + 2)
    with pytest.raises(RuntimeError):
        Database(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)
    assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchall() == []
    connection.execute("SELECT note FROM runs")
    connection.close()


def test_schema_2_keeps_every_row_and_what_was_counted(tmp_path: Path) -> None:
    path = tmp_path / "lorad.db"
    connection = sqlite3.connect(path)
    connection.executescript((SCHEMAS / "1.sql").read_text())
    hash_32 = "zeroblob(32)"
    connection.executescript(
        f"""
        INSERT INTO clients VALUES (1, 'owner', {hash_32}, 5);
        INSERT INTO adapters (id, client_id, name, base_model, base_hash, method, rank, alpha,
            targets, use_rslora, labels, max_tokens, too_long, training, key, created_at)
        VALUES (3, 1, 'phone', 'tiny', 'sha256:0', 'first_order', 8, 16.0, '["q_proj"]', 0,
            NULL, 64, 'cut', '{{}}', {hash_32}, 7);
        INSERT INTO examples VALUES
            (1, 3, 'äé', 'now', 'train', 'mine', 'used', {hash_32}, 8, 9),
            (2, 3, 'b', 'now', 'holdout', NULL, 'pending', {hash_32}, 8, 9),
            (9, 3, 'gone', 'now', 'train', NULL, 'pending', {hash_32}, 8, 9);
        DELETE FROM examples WHERE id = 9;
        INSERT INTO runs (id, adapter_id, status, step, losses, created_at)
        VALUES (4, 3, 'completed', 2, '[[1,0.5]]', 10);
        INSERT INTO versions VALUES (1, 3, 1, 4, 'adapters/3/versions/run-00000004', '{{}}',
            '{{"steps":2,"holdout_rows":[{{"example_id":2,"label":"secret","before":{{}}}}]}}',
            'promoted', 'better', 1, 11);
        """
    )
    connection.close()
    set_version(path, 1)
    with Database(path) as database, database.read() as session:
        rows = session.execute(text("SELECT id, input, status FROM examples ORDER BY id")).all()
        assert [tuple(row) for row in rows] == [(1, "äé", "used"), (2, "b", "pending")]
        counts = session.execute(text("SELECT * FROM example_counts ORDER BY split")).all()
        assert [tuple(row) for row in counts] == [
            (3, "holdout", "pending", 1, 4),
            (3, "train", "used", 1, 7),
        ]
        manifest = session.execute(text("SELECT manifest FROM versions")).scalar_one()
        assert json.loads(manifest) == {"steps": 2}
        client = session.execute(text("SELECT scopes, key_id, length(key) FROM clients")).one()
        assert client.scopes == '["admin"]'
        assert len(client.key_id) == 32
        highest = session.execute(
            text("SELECT seq FROM sqlite_sequence WHERE name = 'examples'")
        ).scalar_one()
        assert highest == 9  # its id is not given again
        assert session.execute(text("PRAGMA foreign_key_check")).all() == []
    assert b"secret" not in path.read_bytes()
    with Database(path) as database, pytest.raises(IntegrityError), database.write() as session:
        session.execute(text("DELETE FROM runs"))  # the keys are enforced again


def test_schema_5_knows_which_numbers_were_given_and_when_versions_became_active(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lorad.db"
    connection = sqlite3.connect(path)
    connection.executescript((SCHEMAS / "4.sql").read_text())
    adapter = (
        "1, '{name}', 'tiny', 'sha256:0', 'first_order', 8, 16.0, '[\"q_proj\"]', 0, NULL, NULL,"
        " 64, 'cut', '{{}}', '{{}}', zeroblob(32), NULL, NULL, 1, 7"
    )
    connection.executescript(
        f"""
        INSERT INTO clients (id, name, key_id, key, scopes, created_at, paired_at)
        VALUES (1, 'owner', 'k', zeroblob(32), '["admin"]', 1, 1);
        INSERT INTO adapters VALUES (3, {adapter.format(name="phone")});
        INSERT INTO adapters VALUES (4, {adapter.format(name="mail")});
        INSERT INTO adapters VALUES (5, {adapter.format(name="new")});
        """
    )
    for run_id, adapter_id, status in ((1, 3, "completed"), (2, 3, "completed"), (3, 3, "failed"),
                                       (4, 4, "completed")):  # fmt: skip
        connection.execute(
            "INSERT INTO runs (id, adapter_id, status, origin, in_window, override, forgotten,"
            " step, kills, crashes, halvings, losses, created_at)"
            " VALUES (?, ?, ?, 'request', 0, 0, 0, 1, 0, 0, 0, '[]', 9)",
            (run_id, adapter_id, status),
        )
    version = (
        "INSERT INTO versions (adapter_id, number, run_id, path, metrics, manifest, verdict,"
        " verdict_reason, active, seen_deleted, created_at)"
        " VALUES (?, ?, ?, ?, '{}', '{}', ?, '-', ?, 0, ?)"
    )
    connection.execute(version, (3, 1, 1, "p1", "promoted", 1, 11))
    connection.execute(version, (4, 2, 4, "p2", "rejected", 0, 12))  # of 4, the first is deleted
    connection.commit()
    connection.close()
    set_version(path, 4)
    with Database(path) as database, database.read() as session:
        adapters = session.execute(text("SELECT id, last_version, keep_versions FROM adapters"))
        assert [tuple(row) for row in adapters] == [(3, 2, None), (4, 2, None), (5, 0, None)]
        found = session.execute(text("SELECT number, activated_at, activated_by FROM versions"))
        assert [tuple(row) for row in found] == [(1, 11, None), (2, None, None)]
