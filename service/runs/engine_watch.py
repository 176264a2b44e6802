"""Whether the NPU's engine is to blame for a worker's end, and what comes of it.

    the worker                              its mark     what follows
    ended by SIGSEGV, SIGABRT, …            in place     the engine is demoted, the mark removed
    killed by us, for it hung               in place     the same
    killed by us, for it didn't stop        in place     the mark is removed: its end is explained
    killed by somebody else, as Android     in place     nothing; the next worker counts the mark
    any                                     removed      nothing: no engine of the NPU was in use

A demoted engine isn't opened again on this device, so the run goes on with `torch_cpu` from its
checkpoint. What demotes or restores an engine elsewhere (a worker, `lorad doctor --again`) is
noticed between two workers, and told in the history.
"""

import logging
import signal
from dataclasses import dataclass, replace

from sqlalchemy.exc import DatabaseError
from sqlmodel import Session

from service.engine_files import Demotion, EngineFiles, Mark
from service.runs.run_end import KILLED, RunEnd, at_step
from service.runs.run_log import note_words
from service.views import timestamp
from storage import history, runs
from storage.clock import now_ms
from storage.database import Database

NATIVE_CRASHES = frozenset(
    -number
    for number in (
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGTRAP,
        signal.SIGSYS,  # Android's answer to a system call that it doesn't allow
    )
)

_PHASES = {
    "opening": "was opened",
    "first product": "computed its first product",
    "training": "was in use",
}

_log = logging.getLogger("lorad.supervisor")


@dataclass(frozen=True)
class Ended:
    """A worker that is gone: whose it was, and how it ended.

    ``hung`` says for how long it was silent, if it was killed for that; ``killed``: by this daemon.
    """

    run_id: int
    pid: int
    exit_code: int
    killed: bool
    hung: str | None


class EngineWatch:
    """Watches one worker after the other, from before its start until after its end."""

    def __init__(self, files: EngineFiles, database: Database) -> None:
        """Take what is demoted now as known."""
        self._files = files
        self._database = database
        self._known = self._demotions()
        self._left_by_another: tuple[int, int] | None = None

    def before_start(self) -> None:
        """A worker is about to be started: what lies there as a mark now is not its own."""
        self._tell_changes()
        self._left_by_another = self._files.mark_stamp()

    def after_end(self, ended: Ended, end: RunEnd) -> RunEnd:
        """The worker's end, with the engine demoted where it is to blame."""
        mark = self._own_mark(ended)
        if mark is not None:
            end = self._judge(mark, ended, end)
        self._tell_changes()
        return end

    def _own_mark(self, ended: Ended) -> Mark | None:
        if self._files.mark_stamp() == self._left_by_another:
            return None
        mark = self._files.mark()
        return mark if mark and (mark.run, mark.pid) == (ended.run_id, ended.pid) else None

    def _judge(self, mark: Mark, ended: Ended, end: RunEnd) -> RunEnd:
        hung = ended.hung if ended.exit_code == KILLED else None
        if hung is None and ended.exit_code not in NATIVE_CRASHES:
            if ended.killed:
                self._remove_mark()
            return end
        demotion = Demotion(
            engine=mark.engine,
            fingerprint=mark.fingerprint,
            cause=_cause(mark, ended.exit_code, hung, end.step),
            phase=mark.phase,
            run=ended.run_id,
            step=end.step,
            at=timestamp(now_ms()),
        )
        try:
            new = self._files.demote(demotion)
        except OSError as error:  # the run's own count of crashes bounds what comes of that
            _log.error("%s can't be demoted: %s", mark.engine, error)
            return end
        self._remove_mark()
        if not new:  # a worker that opens what is demoted is to blame itself, and is counted
            return end
        _log.error("run %d: %s is demoted: %s", ended.run_id, mark.engine, demotion.cause)
        return replace(end, demoted=mark.engine)

    def _remove_mark(self) -> None:
        try:
            self._files.remove_mark()
        except OSError as error:
            _log.error("the mark of the engine in use can't be removed: %s", error)

    def _demotions(self) -> dict[tuple[str, str], Demotion]:
        return {demotion.what: demotion for demotion in self._files.demotions()}

    def _tell_changes(self) -> None:
        """Put into the history what was demoted or restored since the last time."""
        found = self._demotions()
        new = [found[what] for what in found if what not in self._known]
        gone = [self._known[what] for what in self._known if what not in found]
        if not new and not gone:
            return
        try:
            with self._database.write() as session:
                for demotion in new:
                    _note(session, demotion)
                for demotion in gone:
                    words = f"{demotion.engine} may be used again on this device, in spite of: "
                    history.add(session, "engine-restored", words + demotion.cause)
        except DatabaseError as error:  # told next time
            _log.error("what became of an engine can't be written: %s", error.orig)
        else:
            self._known = found


def _note(session: Session, demotion: Demotion) -> None:
    words = (
        f"{demotion.engine} is not used on this device any more, torch_cpu in its place: "
        f"{demotion.cause}"
    )
    run = None if demotion.run is None else runs.by_id(session, demotion.run)
    if run is None:
        history.add(session, "engine-demoted", words)
    else:
        note_words(session, run, "engine-demoted", f"run {run.id}: {words}")


def _cause(mark: Mark, exit_code: int, hung: str | None, step: int | None) -> str:
    what = signal.Signals(-exit_code).name if hung is None else hung
    form = "" if mark.form is None else f" (form {mark.form})"
    place = "" if step is None else f" {at_step(step)}"
    did = _PHASES.get(mark.phase or "", "was in use")
    return f"{what}{place} while {mark.engine}{form} {did}; the worker.log of that run says more"
