"""The logs of child processes: their newest end is kept, whatever a native library prints."""

import logging
import os
from pathlib import Path

from service.home import Home

MOST_BYTES = 1024 * 1024
"""Of one child's log; a longer one loses its beginning."""
KEPT_BYTES = 256 * 1024

_log = logging.getLogger("lorad.child")


def shorten(path: Path) -> None:
    """Leave the last `KEPT_BYTES`, from a whole line on, of a log longer than `MOST_BYTES`.

    A child may be writing to it, at its end wherever that is: it is cut where it lies. What is
    written at this very moment may be lost.

    Raises:
        OSError: it can't be read or written; one that isn't there is short.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        if size <= MOST_BYTES:
            return
        end = os.pread(descriptor, KEPT_BYTES, size - KEPT_BYTES)
        file.truncate(0)
        file.write(end.partition(b"\n")[2] or end)


def shorten_all(home: Home) -> None:
    """Shorten every log in the home that is too long. One that resists is left, and told of."""
    for path in (home.predictor_log, *home.worker_logs()):
        try:
            shorten(path)
        except OSError as error:
            _log.error("%s can't be shortened: %s", path.relative_to(home.path), error.strerror)
