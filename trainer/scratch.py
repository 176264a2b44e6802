"""Temporary files of the process that holds torch: in a folder that the next one empties."""

import os
import shutil
import tempfile
from pathlib import Path

SCRATCH_NAME = "tmp"


def use_scratch(home: Path) -> None:
    """Put this process's temporary files, and its children's, into the home's own folder for them.

    Call it with worker.lock held: whatever lies there is of a process that was killed, on a phone
    the normal end of one, and may be a table of a base model's weights.
    """
    folder = home / SCRATCH_NAME
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
