"""The demo's child processes: `lorad model add` and `lorad serve`, as a person would start them.

Each runs in a session of its own, so that Ctrl-C in the terminal reaches the demo alone, which then
ends them in order; none outlives the `with` block of `Household`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

START_SECONDS = 60
STOP_SECONDS = 30
"""The daemon lets its worker finish a step and write a checkpoint."""
TAIL_LINES = 15
POLL_SECONDS = 0.2


class ChildError(RuntimeError):
    """A child process failed; the message holds its exit code and the end of its output."""


class Household:
    """A home folder with a daemon living in it."""

    def __init__(self, home: Path, scratch: Path) -> None:
        """Prepare; nothing runs yet.

        Args:
            home: the `LORAD_HOME` of every child.
            scratch: where the children's output goes.
        """
        self.home = home
        self._scratch = scratch
        self._children: list[subprocess.Popen[bytes]] = []
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Household:
        """Enter; children are started by `run` and `serve`."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every child, the last one first."""
        for child in reversed(self._children):
            _end(child)

    def run(self, name: str, arguments: Sequence[str], tick: Callable[[], None]) -> None:
        """Run a Python module to its end; `tick` is called while it works.

        Raises:
            ChildError: it ended with another code than 0.
        """
        child = self._start(name, arguments)
        while child.poll() is None:
            tick()
            time.sleep(POLL_SECONDS)
        if child.returncode != 0:
            raise ChildError(
                f"{' '.join(arguments[:4])} ended with code {child.returncode}:\n{self.tail(name)}"
            )

    def serve(self, engine: str) -> tuple[int, str]:
        """Start the daemon on a free port and wait until it is there: its port and its token.

        Raises:
            ChildError: it ended, or said nothing for a minute.
        """
        arguments = ["service.cli.main", "serve", "--engine", engine]
        self._daemon = daemon = self._start("serve", arguments)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            state = _read_json(self.home / "daemon.json")
            token = self.home / "token"
            if state.get("pid") == daemon.pid and token.exists():
                return int(str(state["port"])), token.read_text().strip()
            time.sleep(POLL_SECONDS)
        raise ChildError(f"the daemon said nothing for {START_SECONDS} s:\n{self.tail('serve')}")

    def check(self) -> None:
        """Make sure that the daemon lives.

        Raises:
            ChildError: it has ended.
        """
        if self._daemon is not None and self._daemon.poll() is not None:
            raise ChildError(
                f"the daemon ended with code {self._daemon.returncode}:\n{self.tail('serve')}"
            )

    def tail(self, name: str) -> str:
        """The last lines that a child printed."""
        return tail(self._scratch / f"{name}.log")

    def _start(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "LORAD_HOME": str(self.home),
            "LORAD_PORT": "0",
            "LORAD_SENSORS": "fake",  # who starts the demo wants to see it train
            "LORAD_RETRY_SECONDS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        with (self._scratch / f"{name}.log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._children.append(child)
        return child


def tail(log: Path) -> str:
    """The last lines of a log file, indented; a word in their place if there are none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:]) or "  (no output)"


def _read_json(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
