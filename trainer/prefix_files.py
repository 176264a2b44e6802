"""One adapter's kept rows: what the frozen layers below the adapted ones made of each example.

    HOME/adapters/<adapter>/prefix/lock
    HOME/adapters/<adapter>/prefix/<layers>-<identity>/<example>-<changed_at>.rows

A file is 16 bytes that name the form, 32 of HMAC-SHA256 under the adapter's key, and the rows as
little-endian float32 [tokens, hidden_size]. The HMAC covers the folder's name, the example, its
tokens and the rows, so that a torn file, a bit that turned, and the rows of another text, another
chat template or another engine are all found, and computed anew.

Rows tell nearly as much of a text as the text does, so they go where it goes. A file is written
under the folder's lock, after a look whether the database still has the text; the daemon removes
the files of texts that are gone under the same lock, after the commit that took them. So no file of
a deleted example appears after the daemon has looked, and what a kill leaves half-written it finds.

Nothing here fails a run: what can't be read is computed, what can't be written isn't kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Tokens = Sequence[int]
Rows = npt.NDArray[np.float32]

_FORM = b"lorad rows 1".ljust(16, b"\0")
_HEADER_BYTES = len(_FORM) + hashlib.sha256().digest_size
_NAME = re.compile(r"(\d+)-(\d+)\.rows")
_LEFT_FREE_BYTES = 1280 * 1024 * 1024
"""Of the file system: more than the 1 GiB that the daemon by default wants free before it starts a
training, so that what one night keeps doesn't stand against the next."""

_log = logging.getLogger(__name__)


def prefix_name(base_hash: str, layers: int, environment: Mapping[str, Any]) -> str:
    """The name of the folder of rows that are, bit for bit, what would be computed now.

    Args:
        base_hash: of the base model.
        layers: how many of its layers are below the adapted ones.
        environment: whatever else the numbers depend on: libraries, threads, engine.
    """
    identity = json.dumps([base_hash, layers, environment], sort_keys=True)
    return f"{layers}-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"


def _all(ids: Collection[int]) -> Collection[int]:
    return ids


class PrefixFiles:
    """The kept rows in one folder, of at most so many bytes: what is there first stays."""

    def __init__(
        self,
        root: Path,
        name: str,
        *,
        limit_bytes: int,
        key: bytes = b"",
        changed_at: Mapping[int, int] | None = None,
        unchanged: Callable[[Collection[int]], Collection[int]] = _all,
        left_free_bytes: int = _LEFT_FREE_BYTES,
    ) -> None:
        """Use `root / name`; all else below `root` goes, and what isn't at hand or is too much.

        Args:
            root: the folder of this adapter's kept rows; it is made when the first are kept.
            name: see `prefix_name`.
            limit_bytes: rows beyond that many bytes aren't kept.
            key: of the HMAC.
            changed_at: when the text of each example at hand was last changed, by id; examples that
                leave it are no longer at hand. None: texts never change, and all are at hand.
            unchanged: which of these examples still have, as the database says now, the text that
                they have at hand.
            left_free_bytes: nothing is written where less than that would be left on the disk.
        """
        self._root, self._name = root, name
        self._folder = root / name
        self._limit, self._key = limit_bytes, key
        self._changed_at, self._unchanged = changed_at, unchanged
        self._left_free = left_free_bytes
        self._sizes: dict[str, int] = {}
        self._no_room: set[int] = set()
        self._refusal: str | None = None
        self.unread = 0
        """How many files were there and were not what they should be."""
        try:
            self._look_through()
        except OSError as error:
            self._refuse(error)

    def read(self, example_id: int, tokens: Tokens, width: int) -> Rows | None:
        """The rows [tokens, width] of an example, or None if they aren't kept."""
        name = self._file_name(example_id)
        if name not in self._sizes:
            return None
        try:
            content = bytearray((self._folder / name).read_bytes())
        except OSError:  # the daemon removes what is deleted
            content = bytearray()
        rows = memoryview(content)[_HEADER_BYTES:]
        if len(rows) == 4 * len(tokens) * width:
            header = self._header(example_id, tokens, rows)
            if hmac.compare_digest(header, content[:_HEADER_BYTES]):
                return np.frombuffer(rows, "<f4").reshape(len(tokens), width)
        self.unread += 1
        self._remove(name)
        return None

    def keep(self, made: Mapping[int, tuple[Tokens, Rows]]) -> None:
        """Keep the rows [tokens, width] of examples, as far as there is room."""
        if self._refusal is not None:
            return
        sizes = {one: _HEADER_BYTES + rows.nbytes for one, (_, rows) in made.items()}
        fitting = []
        free = self._limit - sum(self._sizes.values())
        for one, size in sizes.items():
            if size > free:
                self._no_room.add(one)
            else:
                free -= size
                fitting.append(one)
        if not fitting:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                for one in self._unchanged(fitting):
                    self._write(one, *made[one])
        except OSError as error:
            self._refuse(error)

    def forget(self, ids: Collection[int]) -> None:
        """Remove all that is kept of these examples."""
        for name in [name for name in self._sizes if _example_of(name) in ids]:
            self._remove(name)

    def report(self) -> dict[str, Any]:
        """What is kept and what isn't, JSON-able."""
        return {
            "examples": len(self._sizes),
            "bytes": sum(self._sizes.values()),
            "limit_bytes": self._limit,
            "without_room": len(self._no_room),
            "unreadable": self.unread,
            "not_written_because": self._refusal,
        }

    def _look_through(self) -> None:
        if not self._root.is_dir():
            return
        with self._locked():
            for path in self._root.iterdir():
                if path.is_dir() and path != self._folder:
                    shutil.rmtree(path)
            free = self._limit
            for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
                size = path.stat().st_size
                if size <= free and self._is_at_hand(path.name):
                    self._sizes[path.name] = size
                    free -= size
                else:
                    path.unlink()

    def _is_at_hand(self, name: str) -> bool:
        if not _NAME.fullmatch(name):
            return False
        if self._changed_at is None:
            return True
        example_id = _example_of(name)
        return example_id in self._changed_at and name == self._file_name(example_id)

    def _write(self, example_id: int, tokens: Tokens, rows: Rows) -> None:
        """Write a file that is whole or, after a kill, is removed by the next look."""
        content = rows.astype("<f4").tobytes()
        size = _HEADER_BYTES + len(content)
        if shutil.disk_usage(self._folder).free - size < self._left_free:
            raise OSError(f"less than {self._left_free} bytes would be left on the disk")
        name = self._file_name(example_id)
        temporary = self._folder / f".{name}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(self._header(example_id, tokens, content))
                file.write(content)
            temporary.replace(self._folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self._sizes[name] = size

    def _header(self, example_id: int, tokens: Tokens, rows: bytes | memoryview) -> bytes:
        about = [self._name, self._file_name(example_id), list(tokens)]
        code = hmac.new(self._key, json.dumps(about).encode(), hashlib.sha256)
        code.update(rows)
        return _FORM + code.digest()

    def _file_name(self, example_id: int) -> str:
        changed_at = 0 if self._changed_at is None else self._changed_at.get(example_id, 0)
        return f"{example_id}-{changed_at}.rows"

    def _remove(self, name: str) -> None:
        self._sizes.pop(name, None)
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            self._refuse(error)

    def _refuse(self, error: OSError) -> None:
        """Nothing more is kept by this process."""
        self._refusal = self._refusal or error.strerror or str(error)
        _log.warning("nothing more is kept of the layers below: %s", self._refusal)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _example_of(name: str) -> int:
    return int(name.partition("-")[0])
