"""The eraser: makes true that what was deleted is gone from the disk.

    deleted ──▶ worker told ──▶ files removed ──▶ log emptied, pages zeroed ──▶ erased_at
    (one commit, with the erasure's row)

Each arrow may be the last thing this process does: the row of the erasure stays pending, and the
next attempt, in this process or the next, does everything after the commit again.

What no program can reach is said here once: copies that flash memory keeps when it writes
elsewhere, snapshots and backups of the file system, blocks that files gave back, adapters that
were exported, what a version's weights have learned, and the memory of a worker until its next
step.
"""

import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlmodel import Session

from service.boot_clock import boot_seconds
from service.child_logs import shorten_all
from service.durable import sync_folder
from service.home import Home
from service.kept_rows import remove_gone, remove_useless
from service.locks import is_held
from service.models import ModelFolder
from service.retention import expire_everywhere
from service.runs.old_runs import remove_old_runs
from service.runs.supervisor import Supervisor
from service.unexpected import log_unexpected
from storage import erasures, history
from storage.database import Database
from storage.ledgers import Erasure
from storage.scrub import ScrubError
from storage.tables import Client

_RETRY_SECONDS = 1.0
"""Between attempts while a deletion that somebody asked for isn't erased."""

_LOOK_SECONDS = 60.0
"""Between looks for what is to be erased because it expired or was replaced."""

_RETENTION_SECONDS = 3600.0
_QUICK_SECONDS = 0.1
_REST = 4
"""After an attempt that kept writers waiting longer than that, the next one waits this multiple of
it: many deletions from a large database are then erased together."""

_OF_EXAMPLES = frozenset({"examples", "retention", "correction"})

IDLE_SECONDS = 300.0
"""After so long without a request, and with nothing in training, the file may be written anew."""

VACUUM_FREE_SHARE = 0.2
VACUUM_FREE_DISK = 3
"""Writing the file anew needs this multiple of its size free: scratch file, log, and room."""

_log = logging.getLogger("lorad.eraser")


class Eraser:
    """Erases what was deleted: at once where it can, else as soon as nothing stands in the way.

    Its thread also lets examples expire, once an hour, removes what a worker kept for a base model
    that is gone and runs of long ago, shortens the children's logs, and writes the database anew
    when it is full of holes and nobody needs it.
    """

    def __init__(
        self,
        home: Home,
        database: Database,
        supervisor: Supervisor,
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Bind to a home; `start` begins. After ``idle_seconds`` without a request it is idle."""
        self._idle_seconds = idle_seconds
        self._home = home
        self._database = database
        self._supervisor = supervisor
        self._lock = threading.Lock()  # of an attempt
        self._not_before = 0.0  # of the next attempt, on the monotonic clock
        self._refused = False  # whether the database refused the last attempt
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._last_request = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="lorad-eraser", daemon=True)

    def start(self) -> None:
        """Begin; what an earlier daemon left pending goes first."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the attempt under way."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def note_request(self) -> None:
        """A request came: this is no idle time."""
        self._last_request = time.monotonic()

    def erase_now(self) -> None:
        """Attempt to erase what is pending, and leave to the thread what can't be done at once."""
        done = False
        if time.monotonic() >= self._not_before and self._lock.acquire(blocking=False):
            try:
                done = self._attempt()
            finally:
                self._lock.release()
        if not done:
            self._wake.set()

    def remove_folders(self) -> None:
        """Remove the folders of pending erasures: at start, before folders are looked through."""
        with self._database.read() as session:
            pending = erasures.pending(session)
        for erasure in pending:
            self._remove(erasure)

    def _work(self) -> None:
        next_retention = boot_seconds()
        while not self._stopping.is_set():
            self._wake.clear()
            if boot_seconds() >= next_retention:
                next_retention = boot_seconds() + _RETENTION_SECONDS
                self._expire()
            self._stopping.wait(self._not_before - time.monotonic())
            with self._lock:
                done = self._attempt()
            if done and self._is_idle():
                self._vacuum()
            if done:
                self._wake.wait(_LOOK_SECONDS)
            else:
                self._stopping.wait(_RETRY_SECONDS)

    def _expire(self) -> None:
        try:
            expire_everywhere(self._database, self._supervisor, self._stopping)
            remove_useless(self._home, self._database, ModelFolder(self._home.models))
            remove_old_runs(self._home, self._database, self._stopping)
            shorten_all(self._home)
        except Exception as error:  # an hour later it is tried again
            log_unexpected(_log, "retention", error)

    def _attempt(self) -> bool:
        """Erase what is pending; whether nothing is any more. The caller holds the lock."""
        try:
            done = self._erase()
        except (sqlite3.OperationalError, OperationalError, PoolTimeoutError) as error:
            if not self._refused:  # else a full disk would fill the log, a line a second
                _log.error("not erased yet, the database refused: %s", error)
            self._refused = True
            return False
        except Exception as error:  # no error of ours may end the erasing
            log_unexpected(_log, "erasing", error)
            return False
        self._refused = False
        return done

    def _erase(self) -> bool:
        with self._database.read() as session:  # closed before the log is emptied
            pending = erasures.pending(session)
        ready = [erasure for erasure in pending if self._remove(erasure)]
        if not ready:
            return not pending
        if not self._erase_rows():
            return False
        with self._database.write() as session:
            erasures.finish(session, [erasure.id for erasure in ready])
            for erasure in ready:
                _note(session, erasure)
        return len(ready) == len(pending)

    def _erase_rows(self) -> bool:
        began = time.monotonic()
        try:
            return self._database.erase()
        except ScrubError as error:
            _log.warning("the file is written anew, because its pages can't be zeroed: %s", error)
            return self._database.vacuum(self._home.path)
        finally:
            now = time.monotonic()
            if now - began > _QUICK_SECONDS:
                self._not_before = now + _REST * (now - began)

    def _remove(self, erasure: Erasure) -> bool:
        """Remove what the erasure lists, and kept rows; whether nothing of it is left."""
        if erasure.what in _OF_EXAMPLES and erasure.client_id is not None:
            return remove_gone(self._home, self._database, erasure.client_id)
        if not erasure.paths:
            return True
        if self._is_being_written(erasure.paths):
            return False
        return all(_remove_durably(self._home.path / path) for path in erasure.paths)

    def _is_being_written(self, paths: Sequence[str]) -> bool:
        """Whether a worker may still write there: one of ours, or one an earlier daemon left."""
        training = self._supervisor.adapter_in_training
        if training is None:
            if self._supervisor.cohabitant.holds_lock:  # so nobody else does
                self._supervisor.cohabitant.forget()
                return False
            return is_held(self._home.worker_lock)
        return f"adapters/{training}" in paths

    def _is_idle(self) -> bool:
        return (
            time.monotonic() - self._last_request >= self._idle_seconds
            and self._supervisor.training is None
            and not is_held(self._home.worker_lock)
        )

    def _vacuum(self) -> None:
        """Write the database anew if that gives back enough, and there is room for it."""
        try:
            if self._database.free_share() < VACUUM_FREE_SHARE:
                return
            size = self._home.database.stat().st_size
            if shutil.disk_usage(self._home.path).free < VACUUM_FREE_DISK * size:
                return
            began = time.monotonic()
            if self._database.vacuum(self._home.path):
                seconds = time.monotonic() - began
                now = self._home.database.stat().st_size
                _log.info("vacuum: %d bytes became %d in %.1f s", size, now, seconds)
        except (sqlite3.OperationalError, OperationalError) as error:
            _log.error("no vacuum, the database refused: %s", type(error).__name__)


def _note(session: Session, erasure: Erasure) -> None:
    """History tells of what somebody asked for, not of every text that expired or was replaced."""
    if erasure.what in ("retention", "correction"):
        return
    owner = None if erasure.client_id is None else session.get(Client, erasure.client_id)
    history.add(
        session,
        "erasure-done",
        f"erasure {erasure.id} is done: nothing of it is left in the home folder",
        client_id=None if owner is None else owner.id,
    )


def _remove_durably(path: Path) -> bool:
    try:
        if path.is_symlink():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)
        if path.parent.is_dir():
            sync_folder(path.parent)
    except OSError as error:
        _log.error("%s can't be removed yet: %s", path.name, error.strerror)
        return False
    return True
