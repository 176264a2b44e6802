"""Bringing a run to its end in the database, once its worker is gone."""

from service.home import Home
from service.runs.adoption import AdoptionError, adopt
from service.runs.checkpoints import newest_checkpoint, remove_checkpoints
from service.runs.run_end import RunEnd, Setback, at_step
from service.runs.run_feed import RunFeed
from service.runs.run_log import note, note_words, tell
from service.runs.setbacks import bear, found_checkpoint, slowed
from service.runs.steering import as_wanted
from storage import runs
from storage.clock import now_ms
from storage.database import Database
from storage.tables import UNFINISHED, Run

_SETBACKS: dict[Setback | None, str] = {
    "kill": "run-killed",
    "crash": "run-crashed",
    "hang": "run-hung",
}


def finish(
    database: Database,
    home: Home,
    feed: RunFeed,
    run_id: int,
    end: RunEnd,
    *,
    retry_seconds: float,
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
        run = close(database, home, run_id, end, retry_seconds, daemon_ends=daemon_ends)
        if run is not None:
            tell(feed, run)
    if run is None or run.status not in UNFINISHED:
        remove_checkpoints(home, run_id)


def close(
    database: Database,
    home: Home,
    run_id: int,
    end: RunEnd,
    retry_seconds: float,
    *,
    daemon_ends: bool,
) -> Run | None:
    """End a running run as wanted, in one transaction; the row, or None if it is deleted."""
    checkpoint = newest_checkpoint(home, run_id)
    with database.write() as session:
        run = runs.by_id(session, run_id)
        if run is not None and run.status == "running":
            found_checkpoint(run, checkpoint)
            halvings = run.halvings
            borne = bear(run, end, now_ms(), retry_seconds)
            last = as_wanted(run, borne, daemon_ends=daemon_ends)
            if last.status == "queued":
                runs.requeue(session, run)
            else:
                runs.end(session, run, last.status, last.reason)
            if run.halvings > halvings:
                note_words(session, run, "run-slowed", f"run {run.id}: {slowed(run)}")
            kind = _SETBACKS.get(end.setback) if end.backs_off else None
            if kind is not None:
                note_words(session, run, kind, f"run {run.id}: {borne.reason}")
            if kind is None or last.status != "interrupted":
                note(session, run)
    return run


def settle(database: Database, home: Home, retry_seconds: float) -> None:
    """At start: end what an earlier daemon left running, and remove checkpoints of no more use."""
    with database.read() as session:
        left = runs.running(session)
    if left is not None:
        why = f"the daemon was killed {at_step(left.step)}"
        end = RunEnd("interrupted", why, "kill", left.step, backs_off=True)
        close(database, home, left.id, end, retry_seconds, daemon_ends=True)
    folders = {int(path.parent.name) for path in home.runs.glob("[0-9]*/checkpoints")}
    with database.read() as session:
        useless = runs.finished(session, sorted(folders))
    for run_id in useless:
        remove_checkpoints(home, run_id)
