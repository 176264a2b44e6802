"""Temporary files of the process that holds torch: in a folder that the next one empties."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRATCH_NAME = "tmp"


@contextmanager
def scratch(home: Path) -> Iterator[None]:
    """Keep this process's temporary files, and its children's, in the home's own folder for them.

    Enter it with worker.lock held: whatever lies there is of a process that was killed, on a phone
    the normal end of one, and may be a table of a base model's weights. At its end all of it goes,
    since a process that has loaded onnxruntime ends without unloading or finalising anything.
    """
    folder = home / SCRATCH_NAME
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
