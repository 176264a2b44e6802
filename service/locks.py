"""Locks on files of the home: `flock`, which the kernel gives back when its holder dies."""

import fcntl
import os
import time
from pathlib import Path
from typing import Self

_RETRY_SECONDS = 0.05


class FileLock:
    """A lock that this process holds until `release`, or until it ends."""

    def __init__(self, descriptor: int) -> None:
        """Wrap the locked file's descriptor; `take` makes these."""
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path, *, patience: float = 0.0) -> Self | None:
        """Lock ``path``, or return None if another process holds it for ``patience`` seconds.

        Some patience bears with `is_held` of another process, which locks for an instant.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    return None
                time.sleep(_RETRY_SECONDS)
            else:
                return cls(descriptor)

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)


def is_held(path: Path) -> bool:
    """Whether some process holds the lock at ``path`` now."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
