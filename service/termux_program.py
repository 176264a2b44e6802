"""Where a command of Termux lies."""

import os
import shutil
from pathlib import Path


def find_termux_program(name: str) -> Path | None:
    """Where it lies, on PATH or where Termux puts it; None if it isn't installed."""
    found = shutil.which(name)
    prefix = os.environ.get("PREFIX")
    if found is None and prefix:
        found = shutil.which(name, path=str(Path(prefix) / "bin"))
    return None if found is None else Path(found)
