"""The worker as a child process, from the daemon's end of its pipes."""

import logging
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

from service.home import Home
from service.settings import Settings

LOG_NAME = "worker.log"
MOST_LINE_BYTES = 64 * 1024 * 1024
"""Far above the longest thing a worker says, an engine's report with a fallback a matrix."""

ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 18),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 20),
}
"""For glibc, which reads it when a process begins: what is large is a mapping of its own, given
back when it is freed. Left to itself it keeps larger and larger pieces in its heap, with gaps that
nothing fits: the peak of a training was a fifth higher. Android's allocator knows none of this."""

_EXAMPLES_CHANGED = b"examples\n"
_DUTY = b"duty %.3f\n"
_SLICE_SECONDS = 0.5

_log = logging.getLogger("lorad.worker")


class WorkerProcess:
    """A running ``python -m trainer.worker``.

    It leads a session of its own, so that signals of a terminal don't reach it. Its standard input
    is a pipe that only this process holds: if the daemon dies, however it dies, the worker reads
    the end of it, checkpoints and ends.
    """

    def __init__(self, settings: Settings, home: Home, run_id: int, halvings: int = 0) -> None:
        """Start the process.

        ``halvings``: how often its checkpoint interval and its memory budget are halved.

        Raises:
            OSError: it can't be started.
        """
        log = os.open(
            home.run(run_id) / LOG_NAME,
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",  # a folder named trainer where the daemon was started is not ours
                    "-m",
                    settings.worker_module,
                    "--home",
                    str(home.path),
                    "--run",
                    str(run_id),
                    "--nice",
                    str(settings.nice),
                    "--halvings",
                    str(halvings),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=ALLOCATOR | os.environ,
            )
        finally:
            os.close(log)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._lock = threading.Condition()  # of the signals and the standard input
        self._reaped = False  # from then on the id may be another process's
        self._asked_to_stop = False
        self._killed = False
        self._patience = math.inf
        self._ended = threading.Event()
        threading.Thread(target=self._reap, name="lorad-worker-reaper", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's id, which is also its group's."""
        return self._process.pid

    def lines(self) -> Iterator[bytes]:
        """What the worker says, line by line, until it closes its end; overlong lines are lost."""
        assert self._process.stdout is not None
        whole = True
        while line := self._process.stdout.readline(MOST_LINE_BYTES):
            ends = line.endswith(b"\n")
            if whole and ends:
                yield line
            elif ends:
                _log.warning("a line of the worker was longer than %d bytes", MOST_LINE_BYTES)
            whole = ends

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit code, once it has ended and what it left behind is taken down.

        None if it hasn't ended after ``seconds``: a process can outlive even SIGKILL, for as long
        as it waits for a device.
        """
        if not self._ended.wait(seconds):
            return None
        return self._process.returncode

    @property
    def killed(self) -> bool:
        """Whether this end has sent SIGKILL."""
        return self._killed

    def tell_examples_changed(self) -> None:
        """Make the worker look which of its examples still exist. Never waits for it."""
        self._tell(_EXAMPLES_CHANGED)

    def tell_duty(self, duty: float) -> None:
        """Let the worker work this share of the time, from its next step on. Never waits."""
        self._tell(_DUTY % duty)

    def ask_to_stop(self, kill_after: float) -> None:
        """Ask for a last checkpoint and the end: SIGTERM, and the end of its standard input.

        A worker that is still there after ``kill_after`` seconds is killed. Asked again, only a
        shorter time counts.
        """
        with self._lock:
            if self._reaped:
                return
            self._kill_within(kill_after)
            if self._asked_to_stop:
                return
            self._asked_to_stop = True
            os.kill(self.pid, signal.SIGTERM)
            assert self._process.stdin is not None
            self._process.stdin.close()

    def kill(self) -> None:
        """Kill the process and all of its group."""
        with self._lock:
            if not self._reaped:
                self._killed = True
                self._kill_group()

    def _tell(self, line: bytes) -> None:
        with self._lock:
            if self._reaped or self._asked_to_stop:
                return  # what it trains on it reads anew when it goes on
            assert self._process.stdin is not None
            try:
                os.write(self._process.stdin.fileno(), line)
            except (BlockingIOError, BrokenPipeError):
                return  # a full pipe says it already; a closed one has no reader any more

    def _kill_within(self, seconds: float) -> None:
        if seconds >= self._patience:
            return
        begun, self._patience = math.isfinite(self._patience), seconds
        if begun:
            self._lock.notify_all()
        else:
            threading.Thread(target=self._lose_patience, daemon=True).start()

    def _lose_patience(self) -> None:
        # In small slices, of which one at most passes while the daemon itself is suspended or
        # frozen: its worker was so too, and had no time to stop either.
        with self._lock:
            while not self._reaped and self._patience > 0:
                slice_ = min(self._patience, _SLICE_SECONDS)
                if not self._lock.wait(slice_):
                    self._patience -= slice_
            if not self._reaped:
                _log.warning("worker %d did not stop in time and is killed", self.pid)
                self._killed = True
                self._kill_group()

    def _reap(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # its id is not given again yet
        with self._lock:
            self._kill_group()
            self._reaped = True
            self._process.wait()
            self._lock.notify_all()
        self._ended.set()

    def _kill_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """Give the pipes back."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
