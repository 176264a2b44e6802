"""A copy of the database as it is at one instant, made while the daemon goes on writing.

``VACUUM INTO`` reads one snapshot, as any reader does, and writes only what is there now: free
pages, and with them what was deleted, don't come along.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storage.database import BUSY_TIMEOUT_MS
from storage.migrations import SCHEMA_VERSION
from storage.tables import UNFINISHED

_UNFINISHED = ", ".join(f"'{status}'" for status in UNFINISHED)


class SnapshotError(Exception):
    """The database can't be copied, or a copy can't be used; the message says why."""


@dataclass(frozen=True)
class Snapshot:
    """What a copy refers to: folders of versions relative to the home, and unfinished runs."""

    schema: int
    versions: tuple[str, ...]
    runs: tuple[int, ...]


def take_snapshot(source: Path, target: Path) -> Snapshot:
    """Copy the database at ``source`` into the new file ``target`` (as private as umask makes it).

    An unfinished run of the copy has no checkpoint: it begins again at its first step, and one that
    was being trained is queued.

    Raises:
        SnapshotError: there is no database, or it is busy or damaged.
    """
    if not source.is_file():
        raise SnapshotError(f"expected a database at {source}, found none")
    try:
        with _opened(source) as connection:
            connection.execute("VACUUM INTO ?", (str(target),))
        with _opened(target) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(
                f"UPDATE runs SET checkpoint_step = NULL WHERE status IN ({_UNFINISHED})"
            )
            connection.execute(
                "UPDATE runs SET status = 'queued', phase = NULL, wanted = NULL "
                "WHERE status = 'running'"
            )
            versions = connection.execute("SELECT path FROM versions ORDER BY id").fetchall()
            runs = connection.execute(
                f"SELECT id FROM runs WHERE status IN ({_UNFINISHED}) ORDER BY id"
            ).fetchall()
            return Snapshot(
                schema=_schema(connection),
                versions=tuple(str(path) for (path,) in versions),
                runs=tuple(int(run) for (run,) in runs),
            )
    except sqlite3.Error as error:
        raise SnapshotError(f"the database {source} can't be copied: {error}") from None


def check_snapshot(path: Path, schema: int) -> None:
    """Make sure that a copy is a whole database of that schema.

    Raises:
        SnapshotError: it isn't; the message says what is wrong.
    """
    try:
        with _opened(path) as connection:
            [(verdict,), *_] = connection.execute("PRAGMA integrity_check(1)").fetchall()
            if verdict != "ok":
                raise SnapshotError("its database is damaged")
            if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise SnapshotError("its database refers to rows that it doesn't have")
            found = _schema(connection)
    except sqlite3.Error:
        raise SnapshotError("its database is damaged") from None
    if found != schema:
        raise SnapshotError(f"its list says schema {schema}, its database has schema {found}")


def require_known_schema(schema: int) -> None:
    """Refuse a copy that a newer lorad made.

    Raises:
        SnapshotError: naming both numbers.
    """
    if schema > SCHEMA_VERSION:
        raise SnapshotError(
            f"it has schema {schema}, this lorad knows schemas up to {SCHEMA_VERSION}; install "
            "the newer lorad that made it"
        )


def _schema(connection: sqlite3.Connection) -> int:
    [(number,)] = connection.execute("PRAGMA user_version").fetchall()
    return int(number)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    address = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA temp_store = MEMORY")
        yield connection
    finally:
        connection.close()
