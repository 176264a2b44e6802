"""A process that reads lines and says events, as the daemon starts its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.fork_server import ForkedProcess


def _what_loading_reads() -> dict[str, str]:
    """The part of the environment that Python and libraries read before a program can."""
    names = ("PYTHON", "LD_", "OMP_", "GOMP_", "OPENBLAS_", "MKL_", "MALLOC_")
    return {name: os.environ[name] for name in os.environ if name.startswith(names)}


_FIRST_READ = _what_loading_reads()


class ForkedWithPipes(ForkedProcess):
    """A fork whose standard input and output are pipes, as those of `subprocess.PIPE` are."""

    def __init__(self, program: Sequence[str], log: IO[str]) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self.stdin: IO[bytes] = os.fdopen(ours_in, "wb")
        self.stdout: IO[bytes] = os.fdopen(ours_out, "rb")
        files = (theirs_in, theirs_out, log.fileno())
        super().__init__("tests.trainer.loaded_worker", program, os.environ, files)
        os.close(theirs_in)
        os.close(theirs_out)


class Child:
    """A running Python module; iterate to read its events."""

    def __init__(
        self,
        log: Path,
        *command: str,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        forked: bool = False,
    ) -> None:
        """Start it; it is killed after so many seconds.

        ``forked`` from a process that has loaded what a worker does (`tests.fork_server`), unless
        what loading reads of the environment is another than it was at first.
        """
        self.log = log.open("a+")
        self.process: subprocess.Popen[bytes] | ForkedWithPipes
        if forked and _what_loading_reads() == _FIRST_READ:
            self.process = ForkedWithPipes(("-m", *command), self.log)
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                env=environment,
            )
        self._alarm = threading.Timer(seconds, self.process.kill)
        self._alarm.daemon = True
        self._alarm.start()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def write(self, some: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(some)
        self.process.stdin.flush()

    def wait(self) -> tuple[int, list[dict[str, Any]]]:
        seen = list(self)
        code = self.process.wait(timeout=60)
        self._alarm.cancel()
        return code, seen

    def log_text(self) -> str:
        self.log.seek(0)
        return self.log.read()
