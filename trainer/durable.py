"""Folders that appear whole or not at all, also across a power cut."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from npu.durable import sync


def ensure_folder(folder: Path, home: Path) -> None:
    """Make a folder below `home`, with its parents; a power cut takes none of its path away.

    All of the path is put on the disk, also what was there already, and so are the names in
    `folder`: a process that was killed between a change and its fsync left it in memory only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = home
    sync(path)
    for part in folder.relative_to(home).parts:
        path /= part
        sync(path)


@contextmanager
def published(final: Path) -> Iterator[Path]:
    """A temporary folder beside `final` that takes its name when the block ends well.

    Every file is fsynced before the rename and the parent after it; that the parent itself is
    there for good is the caller's part (`ensure_folder`). On an exception, or if `final` already
    exists, nothing of it stays.

    Raises:
        FileExistsError: if `final` exists by then.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.parent / f".tmp-{final.name}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.rglob("*")):
            sync(path)
        sync(temporary)
        if final.exists():
            raise FileExistsError(f"expected no {final.name}, found one; it is never overwritten")
        temporary.rename(final)
        sync(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_unfinished(parent: Path, of: str = "") -> None:
    """Remove what a killed process left half-written where it `published`.

    Only of folders whose names begin with `of`: another process may be publishing others there.
    """
    for folder in parent.glob(f".tmp-{of}*"):
        shutil.rmtree(folder, ignore_errors=True)


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
