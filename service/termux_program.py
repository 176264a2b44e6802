"""Where a command of Termux lies, and the patience with one: they may hang, and then often do."""

import os
import shutil
from pathlib import Path

SECONDS = 5.0
"""For one call."""
MOST_BYTES = 64 * 1024
_AGAIN_AFTER_SECONDS = (20.0, 20.0, 120.0, 300.0, 900.0)


def again_after(failures: int) -> float:
    """How many seconds to let a command be after so many failures in a row, one at least.

    Where all calls hang, each leaves work behind in the system.
    """
    return _AGAIN_AFTER_SECONDS[min(failures, len(_AGAIN_AFTER_SECONDS)) - 1]


def find_termux_program(name: str) -> Path | None:
    """Where it lies, on PATH or where Termux puts it; None if it isn't installed."""
    found = shutil.which(name)
    prefix = os.environ.get("PREFIX")
    if found is None and prefix:
        found = shutil.which(name, path=str(Path(prefix) / "bin"))
    return None if found is None else Path(found)
