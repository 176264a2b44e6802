"""The race: living contestants, one step of one after the other, so that other load hits all.

Who begins changes from round to round. A ratio is taken within a round, where both computed the
same batch one shortly after the other; what is reported is the median of the rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.peers_contestants import CONTESTANTS
from bench.peers_settings import Setting

ROOT = Path(__file__).resolve().parents[1]
LOSS_TOLERANCE = 1e-3
"""How far apart the losses of the same computation may be, natural log, at any step."""

_SPIN_COUNT = "10000"
"""As `trainer.worker` sets it, and for the same reason; the contestants waiting shall not spin."""


class ContestantError(RuntimeError):
    """A contestant ended before its work did; the message holds the end of what it printed."""


@dataclass
class Record:
    """What one contestant did in one setting."""

    about: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    peak_mb: dict[str, float] = field(default_factory=dict)
    """VmHWM after the last step: `from_start` of the process, `training` since it was loaded."""


class Child:
    """A contestant's process."""

    def __init__(self, name: str, task: Path, log: Path, python: str) -> None:
        """Start it; it loads while others do."""
        self.name = name
        self._log = log
        self.record = Record()
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "GOMP_SPINCOUNT": _SPIN_COUNT,
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error",
        }
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, "-m", "bench.peers_child", name, str(task)],
                cwd=ROOT,
                env=environment,
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
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
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
) -> tuple[dict[str, Record], dict[str, str]]:
    """Let all contestants of `setting` train.

    Args:
        setting: which contestants and how many steps; its batches are the task's.
        task: the task's file.
        pythons: interpreter of each contestant; who has none doesn't take part.
        logs: folder for what the contestants print.

    Returns:
        What each of them did, and of those in a foreign environment that failed the reason.

    Raises:
        ContestantError: if one in our own environment fails.
    """
    children: dict[str, Child] = {}
    failures: dict[str, str] = {}

    def attempt(child: Child, work: Callable[[], None]) -> None:
        try:
            work()
        except ContestantError as error:
            if CONTESTANTS[child.name].environment is None:
                raise
            failures[child.name] = str(error)
            children.pop(child.name).close()

    try:
        for name in (*setting.contestants, *setting.extras):
            if name in pythons:
                log = logs / f"{setting.name}-{name}.log"
                children[name] = Child(name, task, log, pythons[name])
        for child in list(children.values()):
            attempt(child, child.wait_until_ready)
        records = {name: child.record for name, child in children.items()}
        for step in range(len(setting.batches)):
            if step == setting.extra_steps:
                for name in children.keys() & set(setting.extras):
                    children.pop(name).close()
            running = list(children.values())
            first = step % len(running)
            for child in running[first:] + running[:first]:
                attempt(child, partial(child.step, step))
    finally:
        for child in children.values():
            child.close()
    return {name: record for name, record in records.items() if name not in failures}, failures


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


def ratio(records: Mapping[str, Record], slower: str, faster: str) -> float | None:
    """Median over the rounds, without the first, of how many times as long `slower` takes."""
    if slower not in records or faster not in records:
        return None
    rounds = zip(records[slower].seconds[1:], records[faster].seconds[1:], strict=False)
    ratios = [a / b for a, b in rounds]
    return statistics.median(ratios) if ratios else None


def loss_differences(records: Mapping[str, Record]) -> dict[str, float]:
    """Largest difference from ours at any step, of all that computed the same."""
    ours = records["ours"].losses
    return {
        name: max(abs(a - b) for a, b in zip(record.losses, ours, strict=False))
        for name, record in records.items()
        if name != "ours" and CONTESTANTS[name].same_weights
    }


def training_shows(setting: Setting, records: Mapping[str, Record]) -> float | None:
    """By how much ours lost on the first batch when it came again; None if it never did.

    Curves of contestants that don't train at all would agree too.
    """
    losses = records["ours"].losses
    again = [i for i in range(1, len(losses)) if setting.batches[i] == setting.batches[0]]
    return losses[0] - losses[again[0]] if again else None


def summary(setting: Setting, records: Mapping[str, Record]) -> dict[str, Any]:
    """A race in JSON."""
    return {
        "steps": len(setting.batches),
        "contestants": {
            name: {
                "median_seconds": _rounded(statistics.median(record.seconds[1:] or record.seconds)),
                "seconds": [_rounded(value) for value in record.seconds],
                "losses": [round(value, 6) for value in record.losses],
                "peak_mb": {key: round(value) for key, value in record.peak_mb.items()},
                **record.about,
            }
            for name, record in records.items()
        },
        "ratios_to_ours": {
            name: _rounded(found)
            for name in records
            if name != "ours" and (found := ratio(records, name, "ours")) is not None
        },
        "largest_loss_difference": {
            name: float(f"{value:.2e}") for name, value in loss_differences(records).items()
        },
        "loss_fell_by": training_shows(setting, records),
    }


def _rounded(value: float) -> float:
    return round(value, 4)
