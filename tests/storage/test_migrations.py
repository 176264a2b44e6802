import re
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from storage import migrations
from storage.database import Database
from storage.migrations import SCHEMA_VERSION, SchemaVersionError

SCHEMAS = Path(__file__).parent / "schemas"


def schema_text(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
            "ORDER BY type DESC, name"
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
