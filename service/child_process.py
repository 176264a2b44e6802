"""A child process of ours, from the daemon's end of its pipes."""

import logging
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from service.child_logs import shorten
from service.outbox import Outbox

MOST_LINE_BYTES = 64 * 1024 * 1024
"""Far above the longest thing a child says, an engine's report with a fallback a matrix."""

ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 20),
}
"""For glibc, which reads it when a process begins: most of a layer's tensors come from one heap,
again and again, and what is larger is a mapping of its own and given back when it is freed. Left to
itself glibc lets a heap for each thread grow with the largest; with every tensor mapped, page
faults took a fifth of a step's time. Android's allocator knows none of this."""

_SLICE_SECONDS = 0.5

_log = logging.getLogger("lorad.child")


class ChildProcess:
    """A running ``python -m …`` that speaks JSON lines.

    It leads a session of its own, so that signals of a terminal don't reach it. Its standard input
    is a pipe that only this process holds: if the daemon dies, however it dies, the child reads
    the end of it, and ends.
    """

    def __init__(
        self,
        what: str,
        module: str,
        arguments: Sequence[str],
        log_path: Path,
        environment: Mapping[str, str],
    ) -> None:
        """Start ``module``; its standard error is appended to the log. ``what`` names it in ours.

        Raises:
            OSError: it can't be started.
        """
        self._what = what
        shorten(log_path)
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(
                # -P: a folder named trainer where the daemon was started is not ours
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**ALLOCATOR, **environment},
            )
        finally:
            os.close(log)
        assert self._process.stdin is not None
        self._outbox = Outbox(self._process.stdin.fileno())
        self._lock = threading.Condition()  # of the signals and the standard input
        self._reaped = False  # from then on the id may be another process's
        self._asked_to_stop = False
        self._killed = False
        self._patience = math.inf
        self._ended = threading.Event()
        threading.Thread(target=self._reap, name="lorad-reaper", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's id, which is also its group's."""
        return self._process.pid

    def lines(self) -> Iterator[bytes]:
        """What the child says, line by line, until it closes its end; overlong lines are lost."""
        assert self._process.stdout is not None
        whole = True
        while line := self._process.stdout.readline(MOST_LINE_BYTES):
            ends = line.endswith(b"\n")
            if whole and ends:
                yield line
            elif ends:
                _log.warning("a line of %s was longer than %d bytes", self._what, MOST_LINE_BYTES)
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

    def ask_to_stop(self, kill_after: float) -> None:
        """Ask for its end in order: SIGTERM, and the end of its standard input.

        A child that is still there after ``kill_after`` seconds is killed. Asked again, only a
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
            self._close_input()

    def kill(self) -> None:
        """Kill the process and all of its group."""
        with self._lock:
            if not self._reaped:
                self._killed = True
                self._kill_group()

    def tell(self, line: bytes) -> None:
        """Send a line, if it is still to go on. Never waits for it."""
        with self._lock:
            if not self._reaped and not self._asked_to_stop:
                self._outbox.put(line)

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
        # frozen: its child was so too, and had no time to stop either.
        with self._lock:
            while not self._reaped and self._patience > 0:
                slice_ = min(self._patience, _SLICE_SECONDS)
                if not self._lock.wait(slice_):
                    self._patience -= slice_
            if not self._reaped:
                _log.warning("%s %d did not stop in time and is killed", self._what, self.pid)
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
        assert self._process.stdout is not None
        self._close_input()
        self._process.stdout.close()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        self._outbox.close()
        self._process.stdin.close()
