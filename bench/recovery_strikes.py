"""When which process is killed: planned from a seed, done at the instant that was planned for.

Most strikes wait for a worker at work and let it do a few steps more; some hit a worker that has
just been started anew, or one that measures, loads or exports; some come at any time. As far as
can be seen, no run is killed three times in a row without a checkpoint between: it would go on
with half the memory, which may round its sums otherwise, and its version would say that it isn't
exact.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.recovery_notes import Process, newest
from bench.service_daemon import Daemon
from bench.service_load import BenchError

Whom = Literal["worker", "daemon", "both"]
When = Literal[
    "training", "resumed", "loading", "evaluating_before", "evaluating_after", "any time"
]

_WHOM: tuple[Whom, ...] = ("worker", "daemon", "worker", "daemon", "both", "daemon", "worker")
_WHEN: tuple[When, ...] = (
    "training",
    "resumed",
    "training",
    "training",
    "evaluating_after",
    "training",
    "training",
    "resumed",
    "training",
    "any time",
    "training",
    "loading",
    "training",
    "training",
    "evaluating_before",
)
_MOST_IN_VAIN = 2
_MOST_STEPS = 40
_RESUMED_SECONDS = 0.3
_ANY_SECONDS = 4.0
_STEP_SECONDS = 0.03
_POLL_SECONDS = 0.005
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Strike:
    """A kill that is planned."""

    whom: Whom
    when: When
    share: float
    """Where in the stretch that ``when`` leaves open, 0 to 1."""


@dataclass(frozen=True)
class Kill:
    """A kill that was done."""

    second: float
    whom: Whom
    run: int | None
    phase: str | None
    """What the worker was doing; None where there was none, or it had not said yet."""
    step: int | None
    worker: int | None
    """The worker's process id, whether it was killed or only lost its daemon."""


def plan(count: int, seed: int) -> list[Strike]:
    """As many strikes, of every kind as far as they are enough; equal seeds give equal plans."""
    source = random.Random(seed)  # noqa: S311 - no secret
    strikes = []
    for number in range(count):
        when = _WHEN[number % len(_WHEN)]
        whom = "worker" if when == "resumed" else _WHOM[number % len(_WHOM)]
        strikes.append(Strike(whom, when, source.random()))
    return strikes


class Killer:
    """Kills processes of one home, and starts its daemon anew."""

    def __init__(self, start: Callable[[], Daemon], notes: Path) -> None:
        """Start the first daemon."""
        self._start, self._notes = start, notes
        self._began = time.monotonic()
        self._in_vain: Counter[int] = Counter()
        """``{run: kills that it saw since it last saved}``"""
        self._struck = 0  # id of the worker that was hit last, which "resumed" doesn't mean
        self.daemon: Daemon | None = start()

    def strike(self, strike: Strike, check: Callable[[], None]) -> Kill:
        """Wait for the strike's instant, kill, and start the daemon again if it was killed.

        ``check`` is called while it waits: it raises what makes waiting pointless.

        Raises:
            BenchError: the instant doesn't come.
        """
        self._wait(strike, check)
        worker = self._living()
        whom = strike.whom if worker is not None or strike.whom == "daemon" else "daemon"
        second = round(time.monotonic() - self._began, 2)
        if whom != "worker":
            assert self.daemon is not None
            daemon, self.daemon = self.daemon, None
            daemon.kill()
        if worker is not None and whom != "daemon":
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            _until_gone(worker.pid)
        if worker is not None:
            worker = self._noted(worker.pid) or worker
            self._struck = worker.pid
            before = 0 if worker.saved else self._in_vain[worker.run_id]
            self._in_vain[worker.run_id] = before + 1
        if self.daemon is None:
            self.daemon = self._start()
        return Kill(
            second,
            whom,
            None if worker is None else worker.run_id,
            None if worker is None else worker.phase,
            None if worker is None else max(worker.steps, default=worker.resumed_from),
            None if worker is None else worker.pid,
        )

    def _wait(self, strike: Strike, check: Callable[[], None]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        if strike.when == "any time":
            time.sleep(strike.share * _ANY_SECONDS)
        goals: dict[int, int] = {}
        while not self._is_the_instant(strike, self._living(), goals):
            check()
            if time.monotonic() > deadline:
                raise BenchError(f"no worker is {strike.when} for {_PATIENCE_SECONDS:.0f} seconds")
            time.sleep(_POLL_SECONDS)
        longest = _RESUMED_SECONDS if strike.when == "resumed" else _STEP_SECONDS
        time.sleep(strike.share * 7 % 1 * longest)  # not always just after it said something

    def _is_the_instant(
        self, strike: Strike, worker: Process | None, goals: dict[int, int]
    ) -> bool:
        """``goals`` keeps which step each process shall come to."""
        if worker is None:
            return strike.when == "any time"
        if not self._may_be_hit(worker):
            return False
        if strike.when == "any time":
            return True
        if worker.pid == self._struck:
            return False
        if strike.when == "resumed":
            return worker.resumed
        if strike.when != "training" or worker.phase != "training":
            return strike.when == worker.phase
        done = max(worker.steps, default=worker.resumed_from or 0)
        return done >= goals.setdefault(worker.pid, done + round(strike.share * _MOST_STEPS))

    def _may_be_hit(self, worker: Process) -> bool:
        return worker.saved or self._in_vain[worker.run_id] < _MOST_IN_VAIN

    def _living(self) -> Process | None:
        """The worker that was begun last, if it is still there."""
        worker = newest(self._notes)
        return worker if worker is not None and _is_alive(worker.pid) else None

    def _noted(self, pid: int) -> Process | None:
        worker = newest(self._notes)
        return worker if worker is not None and worker.pid == pid else None


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _until_gone(pid: int) -> None:
    while _is_alive(pid):
        time.sleep(_POLL_SECONDS)
