"""Secrets of the home folder: a file each, made once, readable by its user only."""

import os
from collections.abc import Callable
from pathlib import Path

from service.durable import write_durably

_MOST_BYTES = 4096


class SecretFileError(Exception):
    """A secret's file can't be used; the message says why and what to do."""


def secret(path: Path, make: Callable[[], bytes]) -> bytes:
    """What the file holds; if there is none, what ``make`` gives is kept there first.

    Only the daemon calls it, under the home's lock, so two can't make one file. A file that others
    may read is closed to them.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        made = make()
        write_durably(path, made)
        return made
    with os.fdopen(descriptor, "rb") as file:
        os.fchmod(file.fileno(), 0o600)
        return file.read(_MOST_BYTES)
