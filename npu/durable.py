"""Putting on the disk what would else be in memory only when the power goes."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Put a file's bytes, or a folder's names, on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
