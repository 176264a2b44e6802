"""The supervisor: one worker process at a time, from the queue to the end of its run.

    queued ──▶ running ──▶ completed     (a whole version was adopted)
      ▲           │──────▶ failed        (the worker says why)
      │           │──────▶ cancelled     (asked for)
      │           │──────▶ paused        (asked for)
      │           └──────▶ interrupted   (killed, crashed, stopped, or the daemon died)
      │                         │
      └──────── by itself ──────┘        (`service.runs.setbacks` says when; a paused one by resume)

Two threads: one takes runs from the queue, starts a worker and waits for its end; while a worker
lives, the other reads what it says.
"""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy.exc import DatabaseError
from sqlmodel import Session

from service.engine_files import EngineFiles
from service.home import Home
from service.locks import is_held
from service.predictions.answering_worker import AnsweringWorker
from service.runs.adoption import adopt_orphans
from service.runs.attendance import Attendance
from service.runs.backoff import waits
from service.runs.checkpoints import newest_checkpoint
from service.runs.chooser import Chooser
from service.runs.cohabitant import Cohabitant, Nobody
from service.runs.engine_watch import Ended, EngineWatch
from service.runs.hang import HangWatch
from service.runs.run_closing import finish, settle
from service.runs.run_end import Circumstances, RunEnd, run_end
from service.runs.run_feed import RunFeed
from service.runs.run_log import note, tell
from service.runs.run_spec import SpecError, read_spec
from service.runs.worker_process import WorkerProcess
from service.settings import Settings
from service.unexpected import log_unexpected
from storage import runs
from storage.clock import now_ms
from storage.database import Database
from storage.tables import Run

_LOCK_POLL_SECONDS = 1.0
_LEAST_WAIT_SECONDS = 0.05
_MOST_WAIT_SECONDS = 30.0  # also if the clock is set, or the phone sleeps through the wait
_DATABASE_RETRY_SECONDS = 5.0
_KILLED_SECONDS = 5.0
_NOT_STARTED = RunEnd("queued", None)

_OUR_ERROR = RunEnd("failed", "an error in lorad itself; its place is in the daemon's log")

_log = logging.getLogger("lorad.supervisor")


@dataclass
class Current:
    """The run that is being trained, from its claim to the writing of its end."""

    run_id: int
    adapter_id: int
    worker: WorkerProcess | None = None
    stop: bool = False  # asked for, perhaps before the worker was started
    because: str | None = None  # why the run is interrupted, where the daemon itself does that
    watch: HangWatch | None = None


class Supervisor:
    """Trains the queued runs of a home, one after the other, until `stop`."""

    def __init__(
        self,
        settings: Settings,
        home: Home,
        database: Database,
        feed: RunFeed,
        chooser: Chooser,
        cohabitant: Cohabitant | None = None,
        training_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Bind to a home; `start` begins. The ``cohabitant`` makes room for each training.

        ``training_changed`` is called, and must not wait, when `training` has become another.
        """
        self.cohabitant = cohabitant or Nobody()
        self._training_changed = training_changed
        self._chooser = chooser
        self._settings = settings
        self._home = home
        self._database = database
        self._feed = feed
        self._engine_watch = EngineWatch(EngineFiles(home.engine), database)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._guard = (
            threading.Condition()
        )  # of _current; never held while the database is waited for
        self._current: Current | None = None
        self._thread = threading.Thread(target=self._work, name="lorad-supervisor", daemon=True)
        self.waiting_because: str | None = None
        """Why no waiting run is started although none is running."""
        self._look_again: float | None = None
        self._duty = 1.0
        self._undying: WorkerProcess | None = None

    def start(self) -> None:
        """Take in what an earlier daemon's workers finished, settle the rest, begin the queue."""
        adopt_orphans(self._database, self._home)
        settle(self._database, self._home, self._settings.retry_seconds)
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
                worker.ask_to_stop(self._settings.stop_seconds)
        # A little longer than the worker's own patience, which doesn't count what is slept through.
        self._thread.join(self._settings.stop_seconds + _KILLED_SECONDS)
        with self._guard:
            if (worker := self._worker()) is not None:
                worker.kill()
        self._thread.join(_KILLED_SECONDS)

    def stop_run(self, run_id: int, kill_after: float | None = None) -> None:
        """Ask the run's worker, if it has one, for a checkpoint and its end. Never waits.

        Call it after the commit that says what is wanted of the run then. A worker that is still
        there after ``kill_after`` seconds (None: ``stop_seconds`` of the settings) is killed.
        """
        with self._guard:
            current = self._current
            if current is None or current.run_id != run_id:
                return
            current.stop = True
            if current.worker is not None:
                patience = self._settings.stop_seconds if kill_after is None else kill_after
                current.worker.ask_to_stop(patience)

    def interrupt(self, run_id: int, because: str) -> None:
        """Have the run's worker write a checkpoint and end; the run is then interrupted.

        ``because`` says in words what stood against it and when it goes on. Never waits.
        """
        with self._guard:
            if self._current is not None and self._current.run_id == run_id:
                self._current.because = because
        self.stop_run(run_id)

    def set_duty(self, duty: float) -> None:
        """Let the worker, and each one after it, work this share of the time (0 < duty <= 1)."""
        with self._guard:
            self._duty = duty
            if self._current is not None and self._current.worker is not None:
                self._tell_duty(self._current)

    @property
    def training(self) -> int | None:
        """The id of the run that is being trained, until its end is written."""
        with self._guard:
            return None if self._current is None else self._current.run_id

    def examples_changed(self, adapter_id: int) -> None:
        """Let the adapter's worker, if there is one, look which of its examples still exist.

        Call it after the commit that deleted or emptied them. Never waits.
        """
        with self._guard:
            worker = self._worker()
            if worker is not None and self._adapter_id() == adapter_id:
                worker.tell_examples_changed()

    @property
    def adapter_in_training(self) -> int | None:
        """The id of the adapter whose run is being trained, until its end is written."""
        with self._guard:
            return self._adapter_id()

    def abandon(self, adapter_ids: Collection[int]) -> bool:
        """Kill the worker of a run of these adapters; True once it is gone, False after 5 seconds.

        Call it after the commit that deleted the adapters: none of their runs is begun after it.
        """
        self._feed.look_again()
        with self._guard:
            current = self._current
            if current is None or current.adapter_id not in adapter_ids:
                return True
            current.stop = True
            if current.worker is not None:
                current.worker.kill()
            return self._guard.wait_for(lambda: self._current is not current, _KILLED_SECONDS)

    def _tell_duty(self, current: Current) -> None:
        assert current.worker is not None
        assert current.watch is not None
        current.watch.set_duty(self._duty)
        current.worker.tell_duty(self._duty)

    def _worker(self) -> WorkerProcess | None:
        return None if self._current is None else self._current.worker

    def _adapter_id(self) -> int | None:
        return None if self._current is None else self._current.adapter_id

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                run = self._claim()
            except DatabaseError as error:
                _log.error("the queue can't be read: %s", error.orig)
                self.cohabitant.room_again()
                self._wake.wait(_DATABASE_RETRY_SECONDS)
                continue
            if run is not None:
                self._training_changed()
                self._train_or_fail(run)
                self._let_go()
            else:
                self.cohabitant.room_again()
                self._wake.wait(self._look_again)

    def _claim(self) -> Run | None:
        with self._database.read() as session:
            choice = self._chooser.choose(session)
            self._look_again = _seconds_until_one_goes_on(session)
        if choice.run_id is None and choice.adapter_id is None:
            self.waiting_because = choice.because
            return None
        self.cohabitant.make_room()
        if is_held(self._home.worker_lock):
            self.waiting_because = self._who_holds_the_lock()
            self._look_again = _LOCK_POLL_SECONDS
            return None
        self.waiting_because = None
        try:
            with self._database.write() as session:
                run = self._chosen(session)
                if run is not None:
                    runs.start(session, run)
                    note(session, run)
                    with self._guard:  # before the commit: who deletes the run later finds it here
                        self._current = Current(run.id, run.adapter_id)
        except BaseException:
            self._let_go()
            raise
        return run

    def _who_holds_the_lock(self) -> str:
        if self._undying is not None and self._undying.wait(0) is None:
            return (
                f"worker {self._undying.pid} was killed and does not end, since it waits in the "
                "kernel for a device, and so it still holds worker.lock of this home; training "
                "starts when it ends, at the latest after a restart of the phone"
            )
        return "another process holds worker.lock of this home; training starts when it ends"

    def _chosen(self, session: Session) -> Run | None:
        choice = self._chooser.choose(session)  # again: the last look was before the lock
        if choice.adapter_id is not None:
            return self._chooser.make_run(session, choice.adapter_id)
        return None if choice.run_id is None else runs.by_id(session, choice.run_id)

    def _let_go(self) -> None:
        with self._guard:
            self._current = None
            self._guard.notify_all()
        self._training_changed()

    def _train_or_fail(self, run: Run) -> None:
        try:
            self._train(run)
        except Exception as error:  # no error of ours may end the queue
            log_unexpected(_log, f"run {run.id}", error)
            with self._guard:
                if (worker := self._worker()) is not None:
                    worker.kill()
            try:
                self._finish(run.id, _OUR_ERROR, look_for_version=False)
            except Exception as another:
                log_unexpected(_log, f"the end of run {run.id}", another)

    def _train(self, run: Run) -> None:
        tell(self._feed, run)
        try:
            worker = self._start_worker(run)
        except SpecError as error:
            end = RunEnd("failed", f"the worker can't be started: {error}")
        except OSError as error:  # no memory, no descriptors, a full disk: that may pass
            why = f"the worker can't be started: {error.strerror or error}"
            end = RunEnd("interrupted", why, "crash", backs_off=True)
        else:
            end = _NOT_STARTED if worker is None else self._attend(worker, run)
        self._finish(run.id, end)

    def _start_worker(self, run: Run) -> WorkerProcess | None:
        base_hash = read_spec(self._home, run.id).get("model", {}).get("base_hash")
        self._engine_watch.before_start()
        with self._guard:
            assert self._current is not None
            if self._stopping.is_set() or self._current.stop:
                return None
            self._current.worker = WorkerProcess(self._settings, self._home, run.id, run.halvings)
            self._current.watch = HangWatch(self._settings.hang_seconds)
            if self._duty < 1:
                self._tell_duty(self._current)
            worker, watch = self._current.worker, self._current.watch
        self.cohabitant.worker_began(AnsweringWorker(worker, watch, base_hash))
        return worker

    def _attend(self, worker: WorkerProcess, run: Run) -> RunEnd:
        assert self._current is not None
        assert self._current.watch is not None
        watch = self._current.watch
        attendance = Attendance(self._database, self._home, self._feed, run, watch, self.cohabitant)
        _log.info("run %d: worker %d started", run.id, worker.pid)
        try:
            exit_code = attendance.attend(worker)
        finally:
            self.cohabitant.worker_ended()
        with self._guard:
            assert self._current is not None
            self._current.worker = None
            asked, because = self._current.stop, self._current.because
        if worker.wait(0) is None:
            _log.error("run %d: worker %d does not end, even killed", run.id, worker.pid)
            self._undying = worker
        else:
            worker.close()
            _log.info("run %d: worker ended with %d", run.id, exit_code)
        around = Circumstances(
            log=str(self._home.worker_log(run.id).relative_to(self._home.path)),
            checkpoint=newest_checkpoint(self._home, run.id),
            asked=asked,
            daemon_stopping=self._stopping.is_set(),
            because=because,
            hung=attendance.hung,
        )
        ended = Ended(run.id, worker.pid, exit_code, worker.killed, attendance.hung)
        end = run_end(exit_code, attendance.progress, around)
        return self._engine_watch.after_end(ended, end)

    def _finish(self, run_id: int, end: RunEnd, *, look_for_version: bool = True) -> None:
        while True:
            try:
                finish(
                    self._database,
                    self._home,
                    self._feed,
                    run_id,
                    end,
                    retry_seconds=self._settings.retry_seconds,
                    daemon_ends=self._stopping.is_set(),
                    look_for_version=look_for_version,
                )
            except DatabaseError as error:
                _log.error("the end of a run can't be written: %s", error.orig)
                if self._stopping.is_set():
                    return  # the next start finds it running and ends it
                self._stopping.wait(_DATABASE_RETRY_SECONDS)
            else:
                return


def _seconds_until_one_goes_on(session: Session) -> float | None:
    """How long to wait for the next run that goes on by itself; None: no run waits."""
    now = now_ms()
    waiting = runs.waiting(session)
    if not waiting:
        return None
    ahead = (run.not_before for run in waiting if waits(run.not_before, now))
    soonest = min((at - now for at in ahead if at is not None), default=None)
    if soonest is None:
        return _MOST_WAIT_SECONDS
    return min(max(soonest / 1000, _LEAST_WAIT_SECONDS), _MOST_WAIT_SECONDS)
