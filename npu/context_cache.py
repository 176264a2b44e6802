"""Graphs as the NPU's compiler left them, kept on disk so that the next start is fast.

    contexts/
      3f0c…/               one folder for the versions of what compiled; other versions' are removed
        9a41…/             one set of files that belong together, named by what it was compiled from
          manifest.json    the key, and each file's size and SHA-256
          context.onnx     … or a context's binary and the small models that lead into it

A native loader may crash on damaged bytes, or compute something else from another model's. It sees
a set only after every byte of it was compared with the manifest, and the manifest with the key.
A set appears whole or not at all, and is never written to again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from npu.durable import sync

GRAPHS_REVISION = 1
"""To be raised when what we compile changes its meaning and not its bytes."""

LIMIT_BYTES = 2 << 30
"""Contexts of a model of a billion parameters in 4 bits take about 0.7 GB."""
KEEP_FREE_BYTES = 512 << 20
"""The disk's rest is for examples and checkpoints."""

_MANIFEST = "manifest.json"
_UNFINISHED, _REMOVED = ".tmp-", ".gone-"
_OURS = re.compile(r"[0-9a-f]{16}|\.gone-[0-9a-f]{16}")
"""What may be removed from a folder that perhaps isn't ours alone."""

_log = logging.getLogger(__name__)


class ContextCache:
    """Sets of compiled files under keys, in a folder of their own; safe with several processes."""

    def __init__(
        self,
        folder: Path,
        *,
        versions: Mapping[str, str],
        options: Mapping[str, str],
        limit_bytes: int = LIMIT_BYTES,
        keep_free_bytes: int = KEEP_FREE_BYTES,
    ) -> None:
        """Use `folder`, which is made on the first store.

        Args:
            folder: where, usually HOME/engine/contexts.
            versions: of the libraries that compile and load.
            options: everything else that a compiled graph depends on, besides the graph.
            limit_bytes: of all sets together; beyond it the least recently used ones go.
            keep_free_bytes: of the disk; nothing is kept that would leave less.
        """
        self._root = folder
        identity = {**versions, "graphs": str(GRAPHS_REVISION)}
        self._folder = folder / _sha256(_canonical(identity))[:16]
        self._options = dict(options)
        self._limit_bytes = limit_bytes
        self._keep_free_bytes = keep_free_bytes

    def key(self, parts: Mapping[str, str]) -> str:
        """The name of a set: of our options, and of what is compiled, by names and SHA-256."""
        return _sha256(_canonical({"options": self._options, "parts": dict(parts)}))

    def load(self, key: str) -> dict[str, Path] | None:
        """The files of the set, by name, if it is here, whole and undamaged."""
        folder = self._folder / key
        try:
            manifest = (folder / _MANIFEST).read_bytes()
        except FileNotFoundError:
            self._discard_if_there(folder, "has no manifest")
            return None
        except OSError as error:
            _log.warning("compiled graphs can't be read and will be made again: %s", error)
            return None
        try:
            paths = {
                entry.name: Path(entry.path)
                for entry in os.scandir(folder)
                if entry.name != _MANIFEST
            }
            if _manifest(key, paths) != manifest:
                self._discard_if_there(folder, "is damaged, or not what its name says")
                return None
            os.utime(folder / _MANIFEST)
        except OSError as error:
            self._discard_if_there(folder, f"can't be read ({error})")
            return None
        return paths

    def store(self, key: str, files: Mapping[str, bytes | Path]) -> None:
        """Keep the set; files given by their paths are moved there.

        Raises OSError if it can't be kept; nothing of it stays then.
        """
        self._remove_leftovers()
        needed = sum(
            path.stat().st_size if isinstance(path, Path) else len(path) for path in files.values()
        )
        self._make_room(needed)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(self._folder).free
        if free - needed < self._keep_free_bytes:
            raise OSError(
                errno.ENOSPC,
                f"expected {needed + self._keep_free_bytes} free bytes for compiled graphs and the "
                f"rest of the disk, found {free}: free some, or they are compiled at each start",
            )
        temporary = self._folder / f"{_UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}"
        try:
            temporary.mkdir(mode=0o700)
            for name, content in files.items():
                _put(content, temporary / name)
            paths = {name: temporary / name for name in files}
            _put(_manifest(key, paths), temporary / _MANIFEST)
            sync(temporary)
            try:
                temporary.rename(self._folder / key)
            except OSError as error:
                # Another process has just kept the same set.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            sync(self._folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def remove(self, key: str) -> None:
        """Forget the set, as far as the disk allows."""
        _remove(self._folder / key)

    def _discard_if_there(self, folder: Path, why: str) -> None:
        if os.path.lexists(folder):
            _log.warning("a set of compiled graphs %s and will be made again", why)
            _remove(folder)

    def _make_room(self, needed: int) -> None:
        """Remove the least recently used sets until `needed` more bytes fit. Raises OSError."""
        if needed > self._limit_bytes:
            raise OSError(
                errno.EFBIG,
                f"expected compiled graphs of at most {self._limit_bytes} bytes, found {needed}: "
                "they are compiled at each start",
            )
        sets = sorted(_sets(self._folder))
        total = sum(size for _, size, _ in sets)
        for _, size, folder in sets:
            if total + needed <= self._limit_bytes:
                break
            _remove(folder)
            total -= size

    def _remove_leftovers(self) -> None:
        """Remove other versions' sets, and what a process left that is no more."""
        with suppress(OSError):
            for folder in self._root.iterdir():
                if folder != self._folder and _OURS.fullmatch(folder.name):
                    _remove(folder)
        with suppress(OSError):
            for folder in self._folder.iterdir():
                if folder.name.startswith(_REMOVED) or _is_orphan(folder.name):
                    _remove(folder)


def digest(content: bytes) -> str:
    """SHA-256 of a part, for `ContextCache.key`."""
    return _sha256(content)


def _sets(folder: Path) -> list[tuple[float, int, Path]]:
    """When each set was last used, its bytes and its folder."""
    found = []
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name.startswith((_UNFINISHED, _REMOVED)):
                continue
            used = 0.0
            with suppress(OSError):
                used = (entry / _MANIFEST).stat().st_mtime
            found.append((used, _size(entry), entry))
    return found


def _size(folder: Path) -> int:
    total = 0
    with suppress(OSError):
        for entry in os.scandir(folder):
            total += entry.stat(follow_symlinks=False).st_size
    return total


def _is_orphan(name: str) -> bool:
    """Whether it is the unfinished set of a process that no longer lives."""
    process = name.removeprefix(_UNFINISHED).partition("-")[0]
    if not name.startswith(_UNFINISHED) or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _remove(folder: Path) -> None:
    """Take it away in one step, then piece by piece."""
    gone = folder
    if not folder.name.startswith(_REMOVED):
        gone = folder.with_name(f"{_REMOVED}{secrets.token_hex(8)}")
        with suppress(OSError):
            folder.rename(gone)
    if gone.is_dir() and not gone.is_symlink():
        shutil.rmtree(gone, ignore_errors=True)
    else:
        with suppress(OSError):
            gone.unlink()


def _put(content: bytes | Path, path: Path) -> None:
    """Write, or move, to `path`, and on to the disk. Raises OSError."""
    if isinstance(content, Path):
        try:
            content.rename(path)
        except OSError:  # from another disk
            shutil.copyfile(content, path)
    else:
        path.write_bytes(content)
    sync(path)


def _manifest(key: str, paths: Mapping[str, Path]) -> bytes:
    """What a set of exactly these files says of itself. Raises OSError."""
    files = {}
    for name, path in paths.items():
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            files[name] = {"bytes": file.tell(), "sha256": sha256}
    return _canonical({"key": key, "files": files})


def _canonical(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
