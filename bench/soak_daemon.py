"""The daemon of a soak: `python -m bench.soak_daemon serve` is `lorad serve` but for three things.

Its clock can be moved on; what is kept for months or by the thousand is kept for days and by the
dozen, so that every bound is reached within a few nights, and whatever grows after that has none;
and it can be made to leak, which the soak must then find.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args
from unittest import mock

from bench.soak_clock import MovedClock
from service.child_process import ChildProcess
from service.cli.main import main

CLOCK = "LORAD_SOAK_CLOCK"
"""Names the clock's file to the daemon."""
FAULT = "LORAD_SOAK_FAULT"
"""Names to it what every child process that it starts shall leave behind."""

Fault = Literal["descriptor", "memory", "file", "zombie"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

LEAKED_BYTES = 256 * 1024

BOUNDS: dict[str, float] = {
    "storage.history.KEPT": 40,
    "storage.history.KEPT_OF_A_KIND": 6,
    "storage.erasures.KEPT_DAYS": 3,
    "storage.retention.SHELL_DAYS": 3,
    "storage.nights.KEPT": 6,
    "service.runs.old_runs.KEPT": 3,
    "service.eraser._LOOK_SECONDS": 1.0,  # its hour may be over sooner than its real minute
}
"""What is kept in a soak, in the unit of each name."""

_leaked: list[Any] = []


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Keep only as much as `BOUNDS` says."""
    with contextlib.ExitStack() as stack:
        for name, bound in BOUNDS.items():
            module, _, constant = name.rpartition(".")
            stack.enter_context(mock.patch.object(importlib.import_module(module), constant, bound))
        yield


@contextlib.contextmanager
def faulty(fault: str) -> Iterator[None]:
    """Leave something behind with every child process that is started; nothing for ''."""
    started = ChildProcess.__init__

    def start(self: ChildProcess, *arguments: Any) -> None:
        started(self, *arguments)
        if fault == "descriptor":
            os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        elif fault == "memory":
            _leaked.append(os.urandom(LEAKED_BYTES))
        elif fault == "file":
            os.close(tempfile.mkstemp()[0])
        elif fault == "zombie" and os.fork() == 0:
            os._exit(0)

    with mock.patch.object(ChildProcess, "__init__", start):
        yield


if __name__ == "__main__":
    with (
        MovedClock(Path(os.environ[CLOCK])).in_this_process(),
        bounded(),
        faulty(os.environ.get(FAULT, "")),
    ):
        main()
