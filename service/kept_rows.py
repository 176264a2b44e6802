"""What a worker keeps of examples beside their texts: rows of the layers below an adapter's.

    adapters/<adapter>/prefix/lock, adapters/<adapter>/prefix/<folder>/<example>-<changed_at>.rows

Such rows tell nearly as much as the text, so no erasure is done before they are gone. A worker
writes a file only under the folder's lock, and after a look whether the database has the text
still; what is removed here, under the same lock and after the commit that took the text, can't come
back. (`trainer.prefix_files` is the other side.)
"""

import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from service.durable import sync_folder
from service.home import Home
from service.locks import FileLock
from service.models import ModelFolder
from service.runs.base_model import base_model_problem
from storage import adapters, examples
from storage.database import Database

_NAME = re.compile(r"(\d{1,18})-(\d{1,18})\.rows")
_PATIENCE_SECONDS = 0.25
"""A worker holds the lock for as long as it writes a few files."""

_log = logging.getLogger("lorad.eraser")


def remove_gone(home: Home, database: Database, client_id: int) -> bool:
    """Remove the rows of texts that the client's adapters don't have any more.

    Whether none of them is left; False also while a worker holds the lock, so that nobody knows.
    """
    with database.read() as session:
        ids = adapters.ids_of_client(session, client_id)
    folders = [home.kept_rows(one) for one in ids]
    return all(_remove_gone(folder, database) for folder in folders if folder.is_dir())


def remove_useless(home: Home, database: Database, models: ModelFolder) -> None:
    """Remove the rows of adapters whose base model is gone or another one by now."""
    for root in home.adapters.glob("*/prefix"):
        with database.read() as session:
            row = adapters.by_id(session, int(root.parent.name))
        if row is None or base_model_problem(models, row.base_model, row.base_hash) is None:
            continue
        try:
            with _locked(root) as locked:
                for folder in _folders(root) if locked else ():
                    shutil.rmtree(folder)
        except OSError as error:
            _log.error("rows of adapter %d can't be removed yet: %s", row.id, error.strerror)


def _remove_gone(root: Path, database: Database) -> bool:
    try:
        with _locked(root) as locked:
            if not locked:
                return False
            for folder in _folders(root):
                if gone := _gone(database, list(folder.iterdir())):
                    for path in gone:
                        path.unlink()
                    sync_folder(folder)
    except OSError as error:
        _log.error("rows of what is deleted can't be removed yet: %s", error.strerror)
        return False
    return True


def _gone(database: Database, paths: Sequence[Path]) -> list[Path]:
    """Those of the files that are of no text that there is: also what a kill left half-written."""
    known = [(path, _NAME.fullmatch(path.name)) for path in paths]
    ids = [int(name[1]) for _, name in known if name]
    with database.read() as session:
        now = examples.last_changed(session, ids)
    return [path for path, name in known if not name or now.get(int(name[1])) != int(name[2])]


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()]


@contextmanager
def _locked(root: Path) -> Iterator[bool]:
    """The folder's lock, or False if a worker goes on holding it."""
    lock = FileLock.take(root / "lock", patience=_PATIENCE_SECONDS)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()
