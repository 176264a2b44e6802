"""Folders that a killed backup or restore leaves beside its target: named after its process."""

import os
import shutil
from pathlib import Path


def scratch_folder(folder: Path, prefix: str) -> Path:
    """A new private folder in ``folder`` for this process; those of dead processes are removed."""
    for path in folder.glob(f"{prefix}*"):
        number = path.name.removeprefix(prefix)
        if number.isdigit() and not _is_alive(int(number)):
            shutil.rmtree(path, ignore_errors=True)
    made = folder / f"{prefix}{os.getpid()}"
    made.mkdir(mode=0o700)
    return made


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # it is somebody else's
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
