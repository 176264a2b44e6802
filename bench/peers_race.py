"""The race: living contestants, one step of one after the other, so that other load hits all.

Who begins changes from round to round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from bench.peers_contestants import CONTESTANTS
from bench.peers_result import Race, Record
from bench.peers_settings import Setting
from service.child_process import ALLOCATOR

ROOT = Path(__file__).resolve().parents[1]
_SECONDS_TO_END = 5
"""A contestant that waits ends at once; one that computes is not waited for any longer."""

_SPIN_COUNT = "10000"
"""As `trainer.worker` sets it, and for the same reason; the contestants waiting shall not spin."""


class ContestantError(RuntimeError):
    """A contestant ended before its work did; the message holds the end of what it printed."""


def surroundings() -> dict[str, str]:
    """The environment variables of whatever is measured."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GOMP_SPINCOUNT": _SPIN_COUNT,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }


class Child:
    """A contestant's process."""

    def __init__(self, name: str, task: Path, log: Path, python: str) -> None:
        """Start it; it loads while others do."""
        self.name = name
        self._log = log
        self.record = Record()
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, "-m", "bench.peers_child", name, str(task)],
                cwd=ROOT,
                env=surroundings() | (ALLOCATOR if name.startswith("ours") else {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def wait_until_ready(self) -> None:
        """Raises ContestantError if it can't be loaded."""
        self.record.about = self._receive()["ready"]

    def step(self, number: int) -> None:
        """Let it take a step. Raises ContestantError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"step": number}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._error() from None
        found = self._receive()
        self.record.seconds.append(found["seconds"])
        self.record.losses.append(found["loss"])
        self.record.peak_mb = found["peak_mb"]

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._error()
        found: dict[str, Any] = json.loads(line)
        return found

    def _error(self) -> ContestantError:
        code = self._process.wait()
        said = self._log.read_text(errors="replace").strip().splitlines()[-12:]
        return ContestantError(f"{self.name} ended with code {code}:\n" + "\n".join(said))


def race(
    setting: Setting, task: Path, pythons: Mapping[str, str], logs: Path
) -> tuple[Race, dict[str, str]]:
    """Let all contestants of `setting` train.

    Args:
        setting: which contestants and how many steps; its batches are the task's.
        task: the task's file.
        pythons: interpreter of each contestant; who has none doesn't take part.
        logs: folder for what the contestants print.

    Returns:
        What they did, and of those in a foreign environment that failed the reason.

    Raises:
        ContestantError: if one in our own environment fails.
    """
    children: dict[str, Child] = {}
    records: dict[str, Record] = {}
    failures: dict[str, str] = {}

    def attempt(child: Child, work: Callable[[], None]) -> None:
        try:
            work()
        except ContestantError as error:
            if CONTESTANTS[child.name].environment is None:
                raise
            failures[child.name] = str(error)
            children.pop(child.name).close()
            records.pop(child.name, None)

    try:
        for name in setting.contestants:
            if name in pythons:
                log = logs / f"{setting.name}-{name}.log"
                children[name] = Child(name, task, log, pythons[name])
        for child in list(children.values()):
            attempt(child, child.wait_until_ready)
        records = {name: child.record for name, child in children.items()}
        for step in range(len(setting.batches)):
            running = list(children.values())
            first = step % len(running)
            for child in running[first:] + running[:first]:
                attempt(child, partial(child.step, step))
    finally:
        for child in children.values():
            child.close()
    return Race(setting, records), failures


def interpreters(names: Sequence[str], environments: Mapping[str, str]) -> dict[str, str]:
    """The Python of each contestant that can run here."""
    found = {}
    for name in names:
        environment = CONTESTANTS[name].environment
        if environment is None:
            found[name] = sys.executable
        elif environment in environments:
            found[name] = environments[environment]
    return found
