"""Runs of long ago: their rows and folders go, or every night would leave some for good."""

import logging
import shutil
import threading

from service.home import Home
from storage import runs
from storage.database import Database

KEPT = 100
"""Runs kept of each adapter: the newest, and whatever their age unfinished ones and those of
versions."""

_log = logging.getLogger("lorad.eraser")


def remove_old_runs(home: Home, database: Database, stopping: threading.Event) -> None:
    """Remove what is beyond `KEPT`, until done or ``stopping``.

    The folder goes first: a kill in between leaves the row, by which the next look finds it.
    """
    with database.read() as session:
        old = runs.beyond(session, KEPT)
    for run_id in old:
        if stopping.is_set():
            return
        folder = home.run(run_id)
        try:
            if folder.exists():
                shutil.rmtree(folder)
        except OSError as error:
            _log.error("the folder of run %d can't be removed yet: %s", run_id, error.strerror)
            continue
        with database.write() as session:
            runs.forget(session, run_id)
