"""Graphs as the NPU's compiler left them, kept on disk so that the next start is fast.

A file is a SHA-256 and the compiled model it belongs to: the native loader, which may crash on
damaged bytes, never sees any.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path

_log = logging.getLogger(__name__)
_DIGEST_BYTES = 32


class ContextCache:
    """Compiled models under the models they were compiled from, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, made on the first store; it should be named after all options in use."""
        self._folder = folder

    def load(self, model: bytes) -> bytes | None:
        """What `model` compiled to, if it is here and undamaged."""
        path = self._path(model)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        digest, compiled = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(compiled).digest() != digest:
            _log.warning("the compiled graph %s is damaged and will be made again", path.name)
            self.remove(model)
            return None
        return compiled

    def store(self, model: bytes, compiled: bytes) -> None:
        """Keep what `model` compiled to. Raises OSError if the disk refuses."""
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._path(model).with_suffix(f".{os.getpid()}.tmp")
        try:
            temporary.write_bytes(hashlib.sha256(compiled).digest() + compiled)
            temporary.replace(self._path(model))
        finally:
            temporary.unlink(missing_ok=True)

    def remove(self, model: bytes) -> None:
        """Forget what `model` compiled to, as far as the disk allows."""
        with suppress(OSError):
            self._path(model).unlink()

    def _path(self, model: bytes) -> Path:
        return self._folder / f"{hashlib.sha256(model).hexdigest()}.context"
