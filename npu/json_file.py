"""Small JSON files that are whole or absent, and that nobody but their user reads."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from npu.durable import sync

_MOST_BYTES = 1 << 20

_log = logging.getLogger(__name__)


def read_json_file(path: Path) -> dict[str, Any] | None:
    """The object in the file; None, with a line in the log, if it holds no whole one or is absent.

    What the files say is advice (an engine to avoid, a test already passed), so a damaged one means
    that nothing is known, and never that training fails.
    """
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("%s can't be read and is passed over: %s", path.name, type(error).__name__)
        return None
    if not isinstance(content, dict):
        _log.warning("%s holds no JSON object and is passed over", path.name)
        return None
    return content


def write_json_file(path: Path, content: dict[str, Any]) -> None:
    """Replace the file; once this returns it survives a power cut. Its folder is made if needed.

    Raises OSError if it can't be written; what was there before stays.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def remove_file(path: Path) -> None:
    """Remove the file, if it is there, also across a power cut. Raises OSError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync(path.parent)
