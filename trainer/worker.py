"""The worker process: `python -m trainer.worker --home HOME --run ID`, started by the daemon.

The one process that holds torch. It takes `worker.lock` for as long as it lives, speaks JSON lines
on the standard output it was given, and stops in order, with a checkpoint, on SIGTERM or when its
standard input, a pipe only the daemon holds, reaches its end. Lines in that pipe: `examples` says
that some were deleted, and that it should look which of its own are still there; `duty 0.35` that
it should compute 35 % of the time from now on; `predict {…}`, a question as
`trainer/predictor.py` takes it, is answered between two steps by the same events.

Exit codes: 0 finished, 1 failed, 3 another worker holds the lock, 75 stopped with a checkpoint, 76
stopped because the disk is full, with none.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import re
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from npu.doctor import Interrupted
from npu.engine_guard import AnotherLibraryPath, EngineGuard
from trainer.line_buffer import LineBuffer
from trainer.pace import Pace
from trainer.predict.answering import refuse_all
from trainer.predict.inbox import Inbox
from trainer.protocol import Protocol
from trainer.run_requests import StopRequested
from trainer.scratch import scratch
from trainer.spec import RunSpec

if TYPE_CHECKING:
    from trainer.run import Run

FINISHED, FAILED, LOCKED, STOPPED, STOPPED_WITHOUT_CHECKPOINT = 0, 1, 3, 75, 76

_DUTY = re.compile(rb"duty ([01](?:\.[0-9]{1,9})?)")
_MOST_DUTY_BYTES = 64
_QUESTION = b"predict "

_log = logging.getLogger("trainer.worker")


class Requests:
    """What the daemon, or the system, has asked of this worker."""

    def __init__(self, protocol: Protocol) -> None:
        """Listen for SIGTERM and on standard input."""
        self._protocol = protocol
        self._reason: str | None = None
        self._changed = threading.Event()
        self.pace = Pace()
        self.questions = Inbox()
        signal.signal(signal.SIGTERM, self._on_signal)
        threading.Thread(target=self._watch_standard_input, daemon=True).start()

    def reason_to_stop(self) -> str | None:
        """Why the worker should stop, once it should."""
        if self._reason is None and self._protocol.broken:
            self._reason = "daemon gone"
        return self._reason

    def examples_changed(self) -> bool:
        """Whether the daemon has said so since this was last asked."""
        if not self._changed.is_set():
            return False
        self._changed.clear()  # before the look: what is said from here on asks for another one
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop(signal.Signals(number).name)

    def _stop(self, reason: str) -> None:
        self._reason = self._reason or reason
        self.pace.wake()

    def _watch_standard_input(self) -> None:
        lines = LineBuffer()
        while some := os.read(0, 65_536):
            for line in lines.feed(some):
                self._heed(line)
        self._stop("daemon gone")

    def _heed(self, line: bytes) -> None:
        """Do what a line says; one that isn't known, perhaps a newer daemon's, does nothing."""
        if line == b"examples":
            self._changed.set()
            self.pace.wake()
        elif (
            len(line) <= _MOST_DUTY_BYTES
            and (said := _DUTY.fullmatch(line))
            and 0 < (duty := float(said[1])) <= 1
        ):
            self.pace.duty = duty
        elif line.startswith(_QUESTION):
            self.questions.put(line.removeprefix(_QUESTION))
            self.pace.wake()
        else:
            _log.warning("a line of %d bytes on standard input was not understood", len(line))


def take_lock(path: Path) -> int | None:
    """Lock the home's worker lock without waiting; None if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def let_idle_threads_sleep() -> None:
    """Let idle OpenMP threads spin briefly, then sleep.

    Spinning for long, the default, made a training step ten times slower on a busy machine, and
    never spinning nearly doubles it on a quiet one (both measured). Read when torch is loaded: a
    reason to import it only after this, and others are that only the process with the lock should
    hold it, and that an engine is tested first, in a child that holds it.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def work(home: Path, run_id: int, halvings: int) -> int:
    """Do the run; returns the exit code."""
    protocol = Protocol({"run": run_id})
    if take_lock(home / "worker.lock") is None:
        _log.error("another worker holds worker.lock; only one may hold torch at a time")
        return LOCKED
    let_idle_threads_sleep()
    requests = Requests(protocol)
    guard = EngineGuard(
        home / "engine",
        run_id,
        stop=lambda: requests.reason_to_stop() is not None,
        testing=lambda: protocol.emit("phase", {"phase": "testing_engine"}),
    )
    with scratch(home):
        try:
            return _train(home, run_id, halvings, protocol, requests, guard)
        finally:
            words = "the training that would answer has ended"
            refuse_all(requests.questions, protocol.emit, words)
            guard.close()


def _train(
    home: Path,
    run_id: int,
    halvings: int,
    protocol: Protocol,
    requests: Requests,
    guard: EngineGuard,
) -> int:
    """Do the run with the lock held; returns the exit code."""
    folder = home / "runs" / str(run_id)
    run: Run | None = None
    try:
        spec = RunSpec.load(folder / "spec.json")
        guard.choose(spec.engine, spec.engine_options(guard.folder))
        from trainer.run import Run

        run = Run(spec, home, protocol.emit, requests, guard, halvings)
        run.execute()
    except Interrupted:
        protocol.emit("stopped", {"step": _saved(folder) or 0, "reason": requests.reason_to_stop()})
        return STOPPED
    except AnotherLibraryPath as stopped:
        protocol.emit("stopped", {"step": _saved(folder) or 0, "reason": str(stopped)})
        return STOPPED
    except StopRequested as stopped:
        protocol.emit("stopped", {"step": stopped.step, "reason": stopped.reason})
        return STOPPED
    except Exception as error:
        from trainer.failures import full_disk, worth_another_try

        if (reason := full_disk(error)) is not None:
            saved = _saved(folder)
            protocol.emit("stopped", {"step": saved or 0, "reason": reason})
            return STOPPED_WITHOUT_CHECKPOINT if saved is None else STOPPED
        sentence = _sentence(error)
        frames = "".join(traceback.format_tb(error.__traceback__))
        _log.error("run %d failed: %s\n%s", run_id, sentence, frames)
        step = None if run is None else run.step
        again = worth_another_try(error)
        protocol.emit("failed", {"step": step, "error": sentence, "again": again})
        return FAILED
    return FINISHED


def _saved(folder: Path) -> int | None:
    from trainer.checkpoint import newest_step

    return newest_step(folder / "checkpoints")


def _sentence(error: Exception) -> str:
    """The error's message on one line, without what could be a piece of an example.

    A LookupError's message is the key that wasn't found, perhaps a label, and a UnicodeError quotes
    what it couldn't read; these are known by their name and their traceback, which holds no values.
    """
    if isinstance(error, LookupError | UnicodeError):
        return f"a {type(error).__name__} that was not expected; the run's worker.log says where"
    return " ".join(str(error).split()) or type(error).__name__


def main() -> None:
    """Command line of the worker."""
    parser = argparse.ArgumentParser(prog="python -m trainer.worker", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--run", type=int, required=True)
    parser.add_argument("--nice", type=int, default=0, help="how much to yield to others")
    parser.add_argument("--halvings", type=int, default=0, help="of checkpoint interval and memory")
    arguments = parser.parse_args()
    os.umask(0o077)
    os.nice(arguments.nice)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    leave(work(arguments.home, arguments.run, arguments.halvings))


def leave(code: int) -> NoReturn:
    """End the process with that exit code.

    An NPU library that failed may crash when it is unloaded, and a run that ended in order must not
    look like a crash; where one may have been loaded nothing is unloaded.
    """
    if "onnxruntime" in sys.modules:
        logging.shutdown()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
