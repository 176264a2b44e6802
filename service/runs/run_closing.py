"""Bringing a run to its end in the database, once its worker is gone."""

import logging
import shutil

from service.home import Home
from service.runs.adoption import AdoptionError, adopt
from service.runs.run_end import RunEnd
from service.runs.run_feed import RunFeed
from service.runs.run_log import note, tell
from service.runs.steering import as_wanted
from storage import runs
from storage.database import Database
from storage.tables import UNFINISHED, Run

DAEMON_GONE = (
    "the daemon ended while it was running; trigger again to go on from its last checkpoint"
)

_log = logging.getLogger("lorad.supervisor")


def finish(
    database: Database,
    home: Home,
    feed: RunFeed,
    run_id: int,
    end: RunEnd,
    *,
    daemon_ends: bool,
    look_for_version: bool,
) -> None:
    """Bring a running run to its end: completed if a whole version is there, else as wanted.

    Does nothing to a run that has its end already, or is deleted.
    """
    with database.read() as session:
        run = runs.by_id(session, run_id)
    if run is not None and run.status == "running":
        path = home.version_path(run.adapter_id, run_id)
        if look_for_version and (home.path / path).is_dir():
            try:
                adopt(database, home, path)
            except AdoptionError as error:
                end = RunEnd("failed", str(error))
        run = close(database, run_id, end, daemon_ends=daemon_ends)
        if run is not None:
            tell(feed, run)
    if run is None or run.status not in UNFINISHED:
        remove_checkpoints(home, run_id)


def close(database: Database, run_id: int, end: RunEnd, *, daemon_ends: bool) -> Run | None:
    """End a running run as wanted, in one transaction; the row, or None if it is deleted."""
    with database.write() as session:
        run = runs.by_id(session, run_id)
        if run is not None and run.status == "running":
            end = as_wanted(run, end, daemon_ends=daemon_ends)
            if end.status == "queued":
                runs.requeue(session, run)
            else:
                runs.end(session, run, end.status, end.reason)
            note(session, run)
    return run


def settle(database: Database, home: Home) -> None:
    """At start: end what an earlier daemon left running, and remove checkpoints of no more use."""
    with database.read() as session:
        left = runs.running(session)
    if left is not None:
        close(database, left.id, RunEnd("interrupted", DAEMON_GONE), daemon_ends=True)
    folders = {int(path.parent.name) for path in home.runs.glob("[0-9]*/checkpoints")}
    with database.read() as session:
        useless = runs.finished(session, sorted(folders))
    for run_id in useless:
        remove_checkpoints(home, run_id)


def remove_checkpoints(home: Home, run_id: int) -> None:
    """Remove the checkpoints of a run that can't go on. What resists, the next start removes."""
    shutil.rmtree(home.run(run_id) / "checkpoints", ignore_errors=True)
