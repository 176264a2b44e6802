"""Writing a file of a person's own: whole or not at all, and readable by its user alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from service.durable import sync_folder


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that is at ``path`` (mode 0600) once the block has ended without an error.

    Until then whatever was there stays, and after an error nothing new is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o600)
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
