"""The database file: one writer, many readers, and the settings that make a commit durable.

Every write goes through one connection behind one lock and begins with ``BEGIN IMMEDIATE``, so a
verb that reads and then writes never meets ``SQLITE_BUSY`` half-way and never acts on a stale
read. Readers each see a snapshot and never wait for the writer (write-ahead log).
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool, StaticPool
from sqlmodel import Session

from storage.migrations import migrate, require_current
from storage.scrub import scrub

BUSY_TIMEOUT_MS = 5_000
"""How long SQLite itself waits for a lock held by another process (a backup, a shell)."""

WRITER_PATIENCE_SECONDS = 15.0
"""How long a write waits for the writes before it: a very large deletion takes longer."""

_TRUNCATE_PATIENCE_MS = 50

READERS_KEPT = 4
READERS_MOST = 16

_WRITER_PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a commit returns only once the log is on the disk
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",  # deleted text is overwritten with zeros
    "PRAGMA temp_store = MEMORY",  # no example text in temporary files
)
_READER_PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA query_only = ON",
    "PRAGMA temp_store = MEMORY",
)


class DatabaseFileError(Exception):
    """The file is not a database that this program can open; the message says which and why."""


class ReadOnlyDatabaseError(Exception):
    """This database was opened read-only; only the daemon writes."""

    def __init__(self) -> None:
        """Say what the class says."""
        super().__init__(self.__doc__)


class Database:
    """The lorad database at ``path``, created and migrated when needed.

    Use as a context manager or call `close`. Only the daemon opens it this way; the worker uses
    `open_readonly`.

    Raises:
        DatabaseFileError: the file is not an SQLite database.
        storage.migrations.SchemaVersionError: the file was written by a newer lorad.
    """

    def __init__(self, path: Path) -> None:
        """Open, create or migrate the file."""
        self.path = path
        self._file: int | None = _open_private(path)
        self._write_lock = threading.Lock()
        self._writer: Engine | None = _engine(path, "rwc", _WRITER_PRAGMAS, "BEGIN IMMEDIATE", 0)
        try:
            with self._writer.connect() as connection:
                migrate(connection)
        except DatabaseError as error:
            self._close_writer()
            raise DatabaseFileError(f"{path} can't be opened as a database: {error.orig}") from None
        except Exception:
            self._close_writer()
            raise
        self._readers = _engine(path, "rw", _READER_PRAGMAS, "BEGIN", READERS_KEPT)

    @classmethod
    def open_readonly(cls, path: Path) -> Self:
        """Open an existing database without ever migrating or writing it.

        Raises:
            DatabaseFileError: there is no such file, or it is not a database.
            storage.migrations.SchemaVersionError: the file has another schema than this program.
        """
        if not path.is_file():
            raise DatabaseFileError(f"{path} does not exist; start the daemon once to create it")
        database = cls.__new__(cls)
        database.path = path
        database._write_lock = threading.Lock()
        database._writer = None
        database._file = None
        database._readers = _engine(path, "ro", _READER_PRAGMAS, "BEGIN", READERS_KEPT)
        try:
            with database._readers.connect() as connection:
                require_current(connection)
        except DatabaseError as error:
            database.close()
            raise DatabaseFileError(f"{path} can't be opened as a database: {error.orig}") from None
        except Exception:
            database.close()
            raise
        return database

    @contextmanager
    def write(self) -> Iterator[Session]:
        """The one writer's session: commits when the block ends, rolls back when it raises.

        When the block has ended, what it wrote is on the disk.

        Raises:
            sqlalchemy.exc.OperationalError: the writer was busy for `WRITER_PATIENCE_SECONDS`, or
                the disk is full; nothing was changed.
        """
        if self._writer is None:
            raise ReadOnlyDatabaseError
        if not self._write_lock.acquire(timeout=WRITER_PATIENCE_SECONDS):
            busy = sqlite3.OperationalError("another write takes long")
            raise OperationalError("BEGIN IMMEDIATE", None, busy)
        try:
            with Session(self._writer, expire_on_commit=False) as session:
                session.execute(text("SELECT 1"))  # begins: the block reads nothing older than this
                yield session
                session.commit()
        finally:
            self._write_lock.release()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that sees one snapshot of the database and can't write."""
        with Session(self._readers, expire_on_commit=False) as session:
            yield session

    def truncate_log(self) -> bool:
        """Fold the write-ahead log into the file and empty it; deleted rows' copies may stay.

        Returns False, after `_TRUNCATE_PATIENCE_MS` at most, while somebody's read transaction
        needs the log; then as much of it is folded in as can be, and nothing is lost.
        """
        with self._write_lock:
            return self._truncate_log()

    def erase(self) -> bool:
        """Leave no byte of anything that was deleted before, in the file or in its log.

        The log is emptied into the file, and what its pages don't use is zeroed (`storage.scrub`).
        Returns False, with nothing zeroed, while a read transaction needs the log. Writers wait
        meanwhile: measured, 30 ms with 100,000 short examples (32 MB).

        Raises:
            storage.scrub.ScrubError: the file is too large or other than expected; `vacuum` helps.
        """
        with self._write_lock:
            if not self._truncate_log():
                return False
            assert self._file is not None
            with self._raw_writer() as cursor:
                cursor.execute("BEGIN IMMEDIATE")  # keeps out other programs, a shell for one
                try:
                    if self._log_bytes():
                        return False
                    scrub(self._file)
                finally:
                    cursor.execute("ROLLBACK")
            self._drop_page_cache()
            return True

    def vacuum(self, scratch: Path) -> bool:
        """Write the whole file anew, without its free pages; whether that could be done.

        False too while a reader needs the log, or if this SQLite can't be told where to build.

        SQLite builds the new file beside the old one: as a file without a name in the folder
        ``scratch``, never in memory. Writers wait until it is done: measured, half a second with
        100,000 short examples. A kill at any point leaves the old file or the new one.

        Raises:
            sqlalchemy.exc.OperationalError: the disk is full; nothing was changed.
        """
        with self._write_lock:
            with self._raw_writer() as cursor:
                where = str(scratch).replace("'", "''")
                cursor.execute("PRAGMA temp_store = FILE")
                cursor.execute(f"PRAGMA temp_store_directory = '{where}'")
                try:
                    cursor.execute("PRAGMA temp_store_directory")
                    if cursor.fetchone() != (str(scratch),):  # an SQLite built without it
                        return False
                    cursor.execute("VACUUM")
                finally:
                    cursor.execute("PRAGMA temp_store = MEMORY")
            return self._truncate_log()

    def free_share(self) -> float:
        """Which part of the file is free pages, 0 to 1."""
        with self.read() as session:
            free = session.execute(text("PRAGMA freelist_count")).scalar_one()
            pages = session.execute(text("PRAGMA page_count")).scalar_one()
        return float(free / pages) if pages else 0.0

    def _truncate_log(self) -> bool:
        with self._raw_writer() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {_TRUNCATE_PATIENCE_MS}")
            try:
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                row = cursor.fetchone()
            finally:
                cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            return row is not None and row[0] == 0  # the first column: whether it was kept from it

    def _log_bytes(self) -> int:
        try:
            return self.path.with_name(f"{self.path.name}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def _raw_writer(self) -> Iterator[DBAPICursor]:
        """The writer without SQLAlchemy's transactions, for what can't be done inside of one."""
        if self._writer is None:
            raise ReadOnlyDatabaseError
        connection = self._writer.raw_connection()
        cursor = connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()
            connection.close()  # gives it back to its pool of one

    def _drop_page_cache(self) -> None:
        """Begin with a new writer connection: the old one's pages hold bytes that were zeroed."""
        assert self._writer is not None
        self._writer.dispose()

    def close(self) -> None:
        """Close every connection; the last one folds the write-ahead log into the file."""
        self._readers.dispose()
        self._close_writer()

    def __enter__(self) -> Self:
        """The open database."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.dispose()
        if self._file is not None:
            # Last: the kernel takes SQLite's locks from a process that closes the file once.
            os.close(self._file)
            self._file = None


def _open_private(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)  # SQLite gives the log and its index the same mode
    return descriptor


def _engine(path: Path, mode: str, pragmas: tuple[str, ...], begin: str, readers: int) -> Engine:
    pool: dict[str, Any] = {"poolclass": StaticPool}
    if readers:
        pool = {
            "poolclass": QueuePool,
            "pool_size": readers,
            "max_overflow": READERS_MOST - readers,
        }
    engine = create_engine(
        f"sqlite:///{path.absolute().as_uri()}?mode={mode}&uri=true",
        connect_args={"check_same_thread": False},
        hide_parameters=True,  # an error's text must not carry an example's text into a log
        **pool,
    )

    # The sqlite3 module would otherwise begin transactions on its own, deferred and too late:
    # https://docs.sqlalchemy.org/en/20/dialects/sqlite.html#pysqlite-serializable
    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine
