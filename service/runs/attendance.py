"""Attending a worker: what it says becomes the run's progress, its version and its events."""

import logging
import threading
import time

from sqlalchemy.exc import DatabaseError

from service.home import Home
from service.predictions.events import is_of_question
from service.runs.adoption import AdoptionError, adopt
from service.runs.cohabitant import Cohabitant
from service.runs.hang import HangWatch
from service.runs.progress import Progress
from service.runs.run_end import KILLED
from service.runs.run_feed import RunFeed
from service.runs.run_log import note_words, tell
from service.runs.worker_events import Checkpoint, Event, EventError, VersionReady, parse
from service.runs.worker_process import WorkerProcess
from service.unexpected import log_unexpected
from storage import runs
from storage.clock import now_ms
from storage.database import Database
from storage.tables import Run

LOOK_SECONDS = 1.0
KILLED_SECONDS = 10.0
"""After this long a worker that was killed and is still there is left to itself."""
CHECKPOINT_NOTE_SECONDS = 60.0
"""At most one checkpoint in this time is put into the history, and the last one."""

_log = logging.getLogger("lorad.supervisor")


class Attendance:
    """Listens to the worker of one run until it closes its end."""

    def __init__(
        self,
        database: Database,
        home: Home,
        feed: RunFeed,
        run: Run,
        watch: HangWatch,
        cohabitant: Cohabitant,
    ) -> None:
        """Go on from the progress in the run's row; ``watch`` is told of every sign of life.

        The ``cohabitant`` gets each line of the worker that is about a prediction, and is told when
        no more are to come.
        """
        self._cohabitant = cohabitant
        self._database = database
        self._home = home
        self._feed = feed
        self._run_id = run.id
        self._watch = watch
        self._checkpoint: int | None = None  # one that the history doesn't tell of yet
        self._noted_at = time.monotonic()
        self._left = False
        self.progress = Progress(run.losses, run.checkpoint_step)
        self.hung: str | None = None
        """For how long the worker was silent, if it was killed for that."""

    def attend(self, worker: WorkerProcess) -> int:
        """Hear the worker out, and kill it if it hangs; its exit code.

        One that doesn't end although it was killed is left to itself, and counts as killed.
        """
        reader = threading.Thread(
            target=self.listen, args=(worker,), name="lorad-worker-reader", daemon=True
        )
        reader.start()
        looks_after_kill = 0
        while (exit_code := worker.wait(LOOK_SECONDS)) is None:
            if worker.killed:
                looks_after_kill += 1
                if looks_after_kill * LOOK_SECONDS >= KILLED_SECONDS:
                    self._left = True
                    return KILLED
            elif (silence := self._watch.look(LOOK_SECONDS)) is not None:
                _log.warning("run %d: worker %d hangs: %s", self._run_id, worker.pid, silence)
                self.hung = silence
                worker.kill()
        reader.join()
        return exit_code

    def listen(self, worker: WorkerProcess) -> None:
        """Hear the worker out. No line of it, and nothing it leads to, raises."""
        for line in worker.lines():
            if self._left:
                return
            self._watch.listen(False)
            try:
                self._hear(line)
            except EventError as error:
                _log.warning("run %d: not an event: %s", self._run_id, error)
            except Exception as error:  # a pipe that nobody reads would stop the worker
                log_unexpected(_log, f"run {self._run_id}", error)
            finally:
                self._watch.listen(True)
        try:
            self._write_progress(now=True, last=True)
        except Exception as error:  # the run's end is still to be written
            log_unexpected(_log, f"run {self._run_id}", error)

    def _hear(self, line: bytes) -> None:
        if is_of_question(line):
            self._cohabitant.worker_said(line)
            return
        event = parse(line)
        if event.run != self._run_id:
            _log.warning("run %d: an event of run %d", self._run_id, event.run)
            return
        self._watch.heard(event)
        if isinstance(event, VersionReady):
            self._write_progress(now=True, last=True)
            self._cohabitant.worker_ended()  # whoever sees the run completed finds the child
            self._adopt(event.path)
        else:
            self._take(event)

    def _take(self, event: Event) -> None:
        now = self.progress.take(event)
        self._feed.work.note(event)
        if isinstance(event, Checkpoint):
            self._checkpoint = event.step
        told = self.progress.told(event)
        if told is not None:
            self._feed.publish(self._run_id, event.event, told)
        self._write_progress(now=now)

    def _write_progress(self, *, now: bool, last: bool = False) -> None:
        values = self.progress.due(now=now)
        if not values and not last:
            return
        clock = time.monotonic()
        tell_checkpoint = self._checkpoint is not None and (
            last or clock - self._noted_at >= CHECKPOINT_NOTE_SECONDS
        )
        try:
            with self._database.write() as session:
                runs.progress(session, self._run_id, values | {"worked_at": now_ms()})
                run = runs.by_id(session, self._run_id) if tell_checkpoint else None
                if run is not None:
                    words = f"run {run.id}: checkpoint at step {self._checkpoint}"
                    note_words(session, run, "run-checkpoint", words)
        except DatabaseError as error:  # the values stay due
            _log.error("run %d: its progress can't be written: %s", self._run_id, error.orig)
            return
        if tell_checkpoint:
            self._checkpoint, self._noted_at = None, clock
        if values:
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
