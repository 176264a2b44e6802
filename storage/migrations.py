"""The schema's number, and the steps from older schemas to this one.

A new file gets today's tables at once. An older file is brought forward by the numbered functions
of `MIGRATIONS`, each in its own transaction together with the new ``PRAGMA user_version``, so that
a kill between two steps leaves a file that the next start goes on with. A newer file is refused:
this program can't know what it would break.
"""

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, text
from sqlmodel import SQLModel

from storage import counting, ledgers, tables
from storage.schemas import schema_2, schema_3, schema_4, schema_5

TABLES = SQLModel.metadata
"""All tables: those of the modules imported here."""

assert counting.ExampleCount.__tablename__ in TABLES.tables
assert ledgers.ScheduleRow.__tablename__ in TABLES.tables
assert tables.Client.__tablename__ in TABLES.tables

SCHEMA_VERSION = 5

MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {
    2: schema_2.migrate,
    3: schema_3.migrate,
    4: schema_4.migrate,
    5: schema_5.migrate,
}
"""``{n: function}``, where the function changes a file of schema n - 1 into one of schema n."""


class SchemaVersionError(Exception):
    """The file's schema is not the one this program knows; the message names both numbers."""


def migrate(connection: Connection) -> None:
    """Bring the database behind ``connection`` (the writer's) to `SCHEMA_VERSION`.

    Raises:
        SchemaVersionError: the file was written by a newer lorad, or is another program's.
    """
    found = schema_version(connection)
    if found > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"the database has schema {found}, this lorad knows schemas up to {SCHEMA_VERSION}; "
            "install the newer lorad that wrote it, or restore an older backup"
        )
    if found == 0:
        _require_empty(connection)
        TABLES.create_all(connection)
        _set_version(connection, SCHEMA_VERSION)
        connection.commit()
        return
    connection.rollback()
    # A table is rebuilt by dropping it; with the keys enforced that would delete what refers to it.
    _enforce_foreign_keys(connection, on=False)
    try:
        for number in range(found + 1, SCHEMA_VERSION + 1):
            MIGRATIONS[number](connection)
            if connection.execute(text("PRAGMA foreign_key_check")).first() is not None:
                raise SchemaVersionError(
                    f"the database of schema {found} refers to rows that it doesn't have, so it "
                    "can't be brought to this lorad's schema; restore a backup"
                )
            _set_version(connection, number)
            connection.commit()
    finally:
        connection.rollback()
        _enforce_foreign_keys(connection, on=True)


def require_current(connection: Connection) -> None:
    """Refuse a file whose schema isn't exactly `SCHEMA_VERSION`.

    Raises:
        SchemaVersionError: naming both numbers.
    """
    found = schema_version(connection)
    if found != SCHEMA_VERSION:
        raise SchemaVersionError(
            f"the database has schema {found}, this program reads schema {SCHEMA_VERSION}; "
            "start the daemon of the same lorad once, which migrates older files"
        )


def schema_version(connection: Connection) -> int:
    """The file's ``PRAGMA user_version``; 0 for a new file."""
    return int(connection.execute(text("PRAGMA user_version")).scalar_one())


def _require_empty(connection: Connection) -> None:
    tables = connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar_one()
    if tables:
        raise SchemaVersionError(
            "the database has tables but schema number 0, so it isn't lorad's; "
            "choose another home folder or move the file away"
        )


def _set_version(connection: Connection, number: int) -> None:
    connection.execute(text(f"PRAGMA user_version = {number}"))


def _enforce_foreign_keys(connection: Connection, *, on: bool) -> None:
    # SQLite ignores this pragma inside a transaction, and SQLAlchemy would begin one.
    driver = connection.connection.dbapi_connection
    assert driver is not None
    driver.cursor().execute(f"PRAGMA foreign_keys = {'ON' if on else 'OFF'}")
