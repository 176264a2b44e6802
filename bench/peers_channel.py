"""A contestant's end of the pipe: it computes a step when it is told to, and says how long it took.

    parent ─▶ {"step": 3}                      one line per step; the end of the pipe ends the child
    child  ─▶ {"ready": {...}}                 once, when everything is loaded
    child  ─▶ {"step": 3, "seconds": 1.02, "loss": 12.89, "peak_mb": {...}}

Between two steps the child waits in a read, so it takes no core from the others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.peers_memory import peak_mb, reset_peak


class Channel:
    """The pipe to the parent, and the clock."""

    def __init__(self) -> None:
        """Take over fd 1: libraries that print shall not write into it."""
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._loading_peak = 0.0
        self._step = 0
        self._started = 0.0

    def ready(self, **about: Any) -> None:
        """All is loaded: say so, and count memory from here on separately."""
        self._loading_peak = peak_mb()
        reset_peak()
        self._send({"ready": about})

    def begin(self) -> int:
        """Wait for the next step, start the clock; the step's number. Raises SystemExit at the end.

        A pipe that closes is the parent's way of saying that it has seen enough.
        """
        line = sys.stdin.readline()
        if not line:
            raise SystemExit(0)
        self._step = json.loads(line)["step"]
        self._started = time.perf_counter()
        return self._step

    def done(self, loss: float) -> None:
        """Stop the clock and report the step."""
        seconds = time.perf_counter() - self._started
        training = peak_mb()
        peak = {"training": training, "from_start": max(training, self._loading_peak)}
        self._send({"step": self._step, "seconds": seconds, "loss": loss, "peak_mb": peak})

    def steps(self) -> Iterator[int]:
        """The steps asked for, until there are no more; call `done` after each."""
        while True:
            yield self.begin()

    def _send(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message) + "\n")
