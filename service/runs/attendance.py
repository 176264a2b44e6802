"""Attending a worker: what it says becomes the run's progress, its version and its events."""

import logging

from sqlalchemy.exc import DatabaseError

from service.home import Home
from service.runs.adoption import AdoptionError, adopt
from service.runs.progress import Progress
from service.runs.run_feed import RunFeed
from service.runs.run_log import tell
from service.runs.worker_events import Event, EventError, VersionReady, parse
from service.runs.worker_process import WorkerProcess
from service.unexpected import log_unexpected
from storage import runs
from storage.database import Database
from storage.tables import Run

_log = logging.getLogger("lorad.supervisor")


class Attendance:
    """Listens to the worker of one run until it closes its end."""

    def __init__(self, database: Database, home: Home, feed: RunFeed, run: Run) -> None:
        """Go on from the progress in the run's row."""
        self._database = database
        self._home = home
        self._feed = feed
        self._run_id = run.id
        self.progress = Progress(run.losses)

    def listen(self, worker: WorkerProcess) -> None:
        """Hear the worker out. No line of it, and nothing it leads to, raises."""
        for line in worker.lines():
            try:
                self._hear(line)
            except EventError as error:
                _log.warning("run %d: not an event: %s", self._run_id, error)
            except Exception as error:  # a pipe that nobody reads would stop the worker
                log_unexpected(_log, f"run {self._run_id}", error)
        try:
            self._write_progress(now=True)
        except Exception as error:  # the run's end is still to be written
            log_unexpected(_log, f"run {self._run_id}", error)

    def _hear(self, line: bytes) -> None:
        event = parse(line)
        if event.run != self._run_id:
            _log.warning("run %d: an event of run %d", self._run_id, event.run)
        elif isinstance(event, VersionReady):
            self._write_progress(now=True)
            self._adopt(event.path)
        else:
            self._take(event)

    def _take(self, event: Event) -> None:
        now = self.progress.take(event)
        told = self.progress.told(event)
        if told is not None:
            self._feed.publish(self._run_id, event.event, told)
        self._write_progress(now=now)

    def _write_progress(self, *, now: bool) -> None:
        values = self.progress.due(now=now)
        if not values:
            return
        try:
            with self._database.write() as session:
                runs.progress(session, self._run_id, values)
        except DatabaseError as error:  # the values stay due
            _log.error("run %d: its progress can't be written: %s", self._run_id, error.orig)
        else:
            self.progress.written()
            self._feed.stored(self._run_id)

    def _adopt(self, path: str) -> None:
        try:
            version = adopt(self._database, self._home, path)
        except AdoptionError as error:
            _log.error("run %d: its version is not whole: %s", self._run_id, error)
            return
        except DatabaseError as error:  # tried again when the worker has ended
            _log.error("run %d: its version can't be adopted now: %s", self._run_id, error.orig)
            return
        told = {"version": version.number}
        self._feed.publish(self._run_id, "version", told, stored=True)
        with self._database.read() as session:
            run = runs.by_id(session, self._run_id)
        if run is not None:
            tell(self._feed, run)
