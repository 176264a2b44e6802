"""A process that reads lines and says events, as the daemon starts its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Child:
    """A running Python module; iterate to read its events."""

    def __init__(
        self,
        log: Path,
        *command: str,
        seconds: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; it is killed after so many seconds."""
        self.log = log.open("a+")
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
