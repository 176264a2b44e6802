"""A program that may hang: it is run to its end, or killed with all that it started.

daemon ──pipe──▶ sh ─┬─ program ─ whatever it forks      one session, one process group
                     └─ guard: reads the pipe; at its end the daemon is dead: kill the group
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

_TURN_SECONDS = 0.02
_CHUNK_BYTES = 64 * 1024
_REAPING_SECONDS = 1.0
_MOST_COMPLAINT = 120

_GUARDED = """
exec 3<&0 0</dev/null
"$@" 3<&- &
program=$!
{ read -r nothing <&3; kill -9 0; } &
exec 3<&-
wait "$program"
"""


class ProgramError(Exception):
    """It gave no output that can be used; the message says why, to stand after its name."""


class SilentProgramError(ProgramError):
    """It didn't answer in time, and perhaps would if it were asked again."""


class BoundedProgram:
    """Runs one program again and again, never twice at once.

    It has a session of its own. When it has ended, its time is over, or this process has died,
    everything left of its process group is killed: helpers that it forked would otherwise stay, and
    count against the number of processes that Android lets an app have. Its output ends when it
    ends, even if such a helper still holds the pipe. It reads nothing.
    """

    def __init__(self, seconds: float, most_bytes: int) -> None:
        """Give each run this long, and room for this much output."""
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._not_reaped: subprocess.Popen[bytes] | None = None

    def output(self, arguments: Sequence[str]) -> bytes:
        """What the program, run with these arguments, writes to its standard output.

        For one thread at a time. Returns at the latest a second after the given time.

        Raises:
            ProgramError: it can't be started, didn't end in time, failed, or wrote too much.
        """
        if self._not_reaped is not None and self._not_reaped.poll() is None:
            raise ProgramError("was killed and still hasn't ended")
        self._not_reaped = None
        try:
            process = subprocess.Popen(
                [_GUARDED, "sh", *arguments],
                shell=True,  # only to find the system's sh, which Android has elsewhere
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ProgramError(f"can't be started: {error.strerror or error}") from None
        with _Pipes(process, self._most_bytes) as pipes:
            try:
                pipes.read_until(time.monotonic() + self._seconds)
            finally:
                _kill_group(process.pid)
            code = self._reap(process)
        if pipes.overflown:
            raise ProgramError(f"wrote more than {self._most_bytes} bytes")
        if not pipes.ended:
            raise SilentProgramError(f"did not answer within {self._seconds:g} seconds")
        if code != 0:
            raise ProgramError(f"failed with exit code {code}{_complaint(pipes.errors)}")
        return bytes(pipes.output)

    def _reap(self, process: subprocess.Popen[bytes]) -> int | None:
        try:
            return process.wait(_REAPING_SECONDS)
        except subprocess.TimeoutExpired:  # it hangs in the kernel
            self._not_reaped = process
            return None


class _Pipes:
    """The output of a process, read while it lives."""

    def __init__(self, process: subprocess.Popen[bytes], most_bytes: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._most_bytes = most_bytes
        self._pipes = (process.stdin, process.stdout, process.stderr)
        self.output = bytearray()
        self.errors = bytearray()
        self.ended = False
        """The process is a zombie: it can be reaped without waiting, its id is still its own."""

    def __enter__(self) -> "_Pipes":
        self._selector = selectors.DefaultSelector()
        for pipe, text in zip(self._pipes[1:], (self.output, self.errors), strict=True):
            self._selector.register(pipe.fileno(), selectors.EVENT_READ, text)
        return self

    def __exit__(self, *exception: object) -> None:
        self._selector.close()
        for pipe in self._pipes:
            pipe.close()

    @property
    def overflown(self) -> bool:
        return max(len(self.output), len(self.errors)) > self._most_bytes

    def read_until(self, deadline: float) -> None:
        """Read until the process has ended, has written too much, or the time is over."""
        while not self.overflown and not self.ended and time.monotonic() < deadline:
            self.ended = self._has_ended()  # asked before the last look, or its last words are lost
            for key, _ in self._selector.select(0 if self.ended else _TURN_SECONDS):
                self._read(key.fd, key.data)

    def _has_ended(self) -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def _read(self, pipe: int, text: bytearray) -> None:
        chunk = os.read(pipe, _CHUNK_BYTES)
        if not chunk:
            self._selector.unregister(pipe)
        text += chunk


def _kill_group(leader: int) -> None:
    # The leader isn't reaped yet: the id can't be another group's.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _complaint(errors: bytearray) -> str:
    lines = errors.decode(errors="replace").strip().splitlines()
    words = "".join(filter(str.isprintable, lines[-1]))[:_MOST_COMPLAINT] if lines else ""
    return f": {words}" if words else ""
