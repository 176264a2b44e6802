"""One value of sysfs: a file with a short line, if this user may read it."""

import re
from pathlib import Path

_MOST_BYTES = 256
_INT = re.compile(r"[+-]?[0-9]{1,18}")


class SysfsError(Exception):
    """The file has no such value; the message names it and says why."""


class MissingFileError(SysfsError):
    """There is no such file, which is another thing than one that can't be read."""


def text_of(file: Path) -> str:
    """The line in the file, without white space around it.

    Raises:
        SysfsError: it can't be read; `MissingFileError` where there is none.
    """
    try:
        with file.open("rb", buffering=0) as opened:
            return opened.read(_MOST_BYTES).decode("ascii", errors="replace").strip()
    except FileNotFoundError:
        raise MissingFileError(f"there is no {file}") from None
    except OSError as error:
        raise SysfsError(f"{file} can't be read: {error.strerror or error}") from None


def int_of(file: Path) -> int:
    """The integer in the file.

    Raises:
        SysfsError: it can't be read, or holds none.
    """
    text = text_of(file)
    if not _INT.fullmatch(text):
        raise SysfsError(f"{file}: expected an integer, found {text[:40]!r}")
    return int(text)
