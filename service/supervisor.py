"""The supervisor: one worker process at a time, from the queue to the end of its run.

    queued ──▶ running ──▶ completed     (a whole version was adopted)
      ▲           │──────▶ failed        (the worker says why)
      │           └──────▶ interrupted   (killed, stopped, or the daemon died)
      └── trigger again ───────┘

Two threads: one takes runs from the queue, starts a worker and waits for its end; while a worker
lives, the other reads what it says.
"""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError

from service.adoption import AdoptionError, adopt
from service.home import Home
from service.locks import is_held
from service.progress import Progress
from service.run_end import RunEnd, run_end
from service.run_spec import SpecError, read_spec
from service.settings import Settings
from service.unexpected import log_unexpected
from service.worker_events import EventError, VersionReady, parse
from service.worker_process import LOG_NAME, WorkerProcess
from storage import runs
from storage.database import Database
from storage.tables import Run

DAEMON_GONE = (
    "the daemon ended while it was running; trigger again to go on from its last checkpoint"
)

_LOCK_POLL_SECONDS = 1.0
_DATABASE_RETRY_SECONDS = 5.0
_KILLED_SECONDS = 5.0

_log = logging.getLogger("lorad.supervisor")


@dataclass
class Current:
    """The run that is being trained, from its claim to the writing of its end."""

    run_id: int
    adapter_id: int
    worker: WorkerProcess | None = None
    abandoned: bool = False


class Supervisor:
    """Trains the queued runs of a home, one after the other, until `stop`."""

    def __init__(self, settings: Settings, home: Home, database: Database) -> None:
        """Bind to a home; `start` begins."""
        self._settings = settings
        self._home = home
        self._database = database
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._guard = (
            threading.Condition()
        )  # of _current; never held while the database is waited for
        self._current: Current | None = None
        self._thread = threading.Thread(target=self._work, name="lorad-supervisor", daemon=True)
        self.waiting_because: str | None = None
        """Why no queued run is started although none is running."""

    def start(self) -> None:
        """Mark what an earlier daemon left running as interrupted, and begin with the queue."""
        with self._database.write() as session:
            runs.interrupt_running(session, DAEMON_GONE)
        self._thread.start()

    def wake(self) -> None:
        """Look into the queue: something has been put there."""
        self._wake.set()

    def stop(self) -> None:
        """Let a running worker write its checkpoint, kill it if it takes too long, and end."""
        self._stopping.set()
        self._wake.set()
        with self._guard:
            if (worker := self._worker()) is not None:
                worker.ask_to_stop()
        self._thread.join(self._settings.stop_seconds)
        with self._guard:
            if (worker := self._worker()) is not None:
                _log.warning("the worker did not stop in time and is killed")
                worker.kill()
        self._thread.join(_KILLED_SECONDS)

    def examples_changed(self, adapter_id: int) -> None:
        """Let the adapter's worker, if there is one, look which of its examples still exist.

        Call it after the commit that deleted or emptied them. Never waits.
        """
        with self._guard:
            worker = self._worker()
            if worker is not None and self._adapter_id() == adapter_id:
                worker.tell_examples_changed()

    def abandon(self, adapter_ids: Collection[int]) -> bool:
        """Kill the worker of a run of these adapters; True once it is gone, False after 5 seconds.

        Call it after the commit that deleted the adapters: none of their runs is begun after it.
        """
        with self._guard:
            current = self._current
            if current is None or current.adapter_id not in adapter_ids:
                return True
            current.abandoned = True
            if current.worker is not None:
                current.worker.kill()
            return self._guard.wait_for(lambda: self._current is not current, _KILLED_SECONDS)

    def _worker(self) -> WorkerProcess | None:
        return None if self._current is None else self._current.worker

    def _adapter_id(self) -> int | None:
        return None if self._current is None else self._current.adapter_id

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                run = self._claim()
            except OperationalError as error:
                _log.error("the queue can't be read: %s", error.orig)
                self._wake.wait(_DATABASE_RETRY_SECONDS)
                continue
            if run is not None:
                self._train_or_fail(run)
                self._let_go()
            elif self.waiting_because is not None:
                self._wake.wait(_LOCK_POLL_SECONDS)
            else:
                self._wake.wait()

    def _claim(self) -> Run | None:
        with self._database.read() as session:
            if runs.next_queued(session) is None:
                self.waiting_because = None
                return None
        if is_held(self._home.worker_lock):
            self.waiting_because = (
                "another process holds worker.lock of this home; training starts when it ends"
            )
            return None
        self.waiting_because = None
        try:
            with self._database.write() as session:
                run = runs.next_queued(session)
                if run is not None:
                    runs.start(session, run)
                    with self._guard:  # before the commit: who deletes the run later finds it here
                        self._current = Current(run.id, run.adapter_id)
        except BaseException:
            self._let_go()
            raise
        return run

    def _let_go(self) -> None:
        with self._guard:
            self._current = None
            self._guard.notify_all()

    def _train_or_fail(self, run: Run) -> None:
        try:
            self._train(run)
        except Exception as error:  # no error of ours may end the queue
            log_unexpected(_log, f"run {run.id}", error)
            end = RunEnd("failed", "an error in lorad itself; its place is in the daemon's log")
            self._persist(lambda: self._close(run.id, end))

    def _train(self, run: Run) -> None:
        try:
            worker = self._start_worker(run)
        except (SpecError, OSError) as error:
            end = RunEnd("failed", f"the worker can't be started: {error}")
        else:
            end = RunEnd("queued", None) if worker is None else self._attend(worker, run)
        self._persist(lambda: self._finish(run.id, end))

    def _start_worker(self, run: Run) -> WorkerProcess | None:
        read_spec(self._home, run.id)
        with self._guard:
            assert self._current is not None
            if self._stopping.is_set() or self._current.abandoned:
                return None
            self._current.worker = WorkerProcess(self._settings, self._home, run.id)
            return self._current.worker

    def _attend(self, worker: WorkerProcess, run: Run) -> RunEnd:
        progress = Progress(run.losses)
        _log.info("run %d: worker %d started", run.id, worker.pid)
        reader = threading.Thread(
            target=self._listen, args=(worker, run.id, progress), name="lorad-worker-reader"
        )
        reader.start()
        exit_code = worker.wait()
        reader.join()
        with self._guard:
            assert self._current is not None
            self._current.worker = None
        worker.close()
        end = run_end(
            exit_code,
            progress,
            has_checkpoint=any(self._home.run(run.id).glob("checkpoints/step-*")),
            daemon_stopping=self._stopping.is_set(),
            log=f"runs/{run.id}/{LOG_NAME}",
        )
        _log.info("run %d: worker ended with %d", run.id, exit_code)
        return end

    def _listen(self, worker: WorkerProcess, run_id: int, progress: Progress) -> None:
        for line in worker.lines():
            try:
                self._hear(line, run_id, progress)
            except EventError as error:
                _log.warning("run %d: not an event: %s", run_id, error)
            except Exception as error:  # a pipe that nobody reads would stop the worker
                log_unexpected(_log, f"run {run_id}", error)
        self._write_progress(run_id, progress, now=True)

    def _hear(self, line: bytes, run_id: int, progress: Progress) -> None:
        event = parse(line)
        if event.run != run_id:
            _log.warning("run %d: an event of run %d", run_id, event.run)
        elif isinstance(event, VersionReady):
            self._write_progress(run_id, progress, now=True)
            self._adopt(run_id, event.path)
        else:
            self._write_progress(run_id, progress, now=progress.take(event))

    def _write_progress(self, run_id: int, progress: Progress, *, now: bool) -> None:
        values = progress.due(now=now)
        if not values:
            return
        try:
            with self._database.write() as session:
                runs.progress(session, run_id, values)
        except OperationalError as error:  # the values stay due
            _log.error("run %d: its progress can't be written: %s", run_id, error.orig)
        else:
            progress.written()

    def _adopt(self, run_id: int, path: str) -> None:
        try:
            adopt(self._database, self._home, path)
        except AdoptionError as error:
            _log.error("run %d: its version is not whole: %s", run_id, error)
        except OperationalError as error:  # tried again when the worker has ended
            _log.error("run %d: its version can't be adopted now: %s", run_id, error.orig)

    def _finish(self, run_id: int, end: RunEnd) -> None:
        """Bring the run to its end, unless an adopted version has completed it already."""
        with self._database.read() as session:
            run = runs.by_id(session, run_id)
        if run is None or run.status == "completed":
            return
        path = self._home.version_path(run.adapter_id, run_id)
        if (self._home.path / path).is_dir():
            try:
                adopt(self._database, self._home, path)
            except AdoptionError as error:
                end = RunEnd("failed", str(error))
            else:
                return
        self._close(run_id, end)

    def _close(self, run_id: int, end: RunEnd) -> None:
        with self._database.write() as session:
            run = runs.by_id(session, run_id)
            if run is None or run.status != "running":
                return
            if end.status == "queued":
                runs.requeue(session, run)
            else:
                runs.end(session, run, end.status, end.reason)

    def _persist(self, write: Callable[[], None]) -> None:
        while True:
            try:
                write()
            except OperationalError as error:
                _log.error("the end of a run can't be written: %s", error.orig)
                if self._stopping.is_set():
                    return  # the next start finds it running and interrupts it
                self._stopping.wait(_DATABASE_RETRY_SECONDS)
            else:
                return
