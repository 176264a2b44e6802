"""What the workers of a bench noted: process by process, run by run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Figures = tuple[Any, ...]
_FIGURES = ("loss", "learning_rate", "grad_norm", "tokens", "label_tokens", "epoch")


@dataclass(frozen=True)
class Process:
    """One worker process, as far as it came."""

    run_id: int
    pid: int
    events: list[dict[str, Any]]

    @property
    def phase(self) -> str | None:
        """What it was doing last; None before it said so."""
        phases = [event["phase"] for event in self.events if event["event"] == "phase"]
        return phases[-1] if phases else None

    @property
    def resumed(self) -> bool:
        """Whether it goes on from a checkpoint."""
        return any(
            event["event"] == "started" and event["resumed_from"] is not None
            for event in self.events
        )

    @property
    def saved(self) -> bool:
        """Whether it wrote a checkpoint."""
        return any(event["event"] == "checkpoint" for event in self.events)

    @property
    def resumed_from(self) -> int | None:
        """The step of the checkpoint it went on from; 0: from none; None: it never got so far."""
        for event in self.events:
            if event["event"] == "started":
                return int(event["resumed_from"] or 0)
        return None

    @property
    def steps(self) -> dict[int, Figures]:
        """What it computed at each step: losses and learning rates, exactly."""
        return {
            event["step"]: tuple(event[name] for name in _FIGURES)
            for event in self.events
            if event["event"] == "step"
        }


@dataclass(frozen=True)
class RunNotes:
    """A run over all of its processes."""

    steps: dict[int, Figures] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    """``{pid: steps that it had done and a later process did again}``"""
    differing: list[int] = field(default_factory=list)
    """Steps that, done again, didn't give the same figures."""


def newest(folder: Path) -> Process | None:
    """The worker process that was begun last, with what it has noted by now."""
    paths = list(folder.glob("*/*.jsonl"))
    return _read(max(paths, key=lambda path: path.name)) if paths else None


def of_run(folder: Path, run_id: int) -> RunNotes:
    """A run's steps, and which of them were done more than once."""
    found = RunNotes()
    reached, last_pid = 0, 0
    for path in sorted((folder / str(run_id)).glob("*.jsonl")):
        process = _read(path)
        if process.resumed_from is not None:
            if reached > process.resumed_from:
                found.lost[last_pid] = reached - process.resumed_from
            reached = process.resumed_from
        for step, figures in process.steps.items():
            if found.steps.setdefault(step, figures) != figures:
                found.differing.append(step)
            reached, last_pid = step, process.pid
    return found


def _read(path: Path) -> Process:
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last line end was cut by a kill
    pid = int(path.stem.partition("-")[2])
    return Process(int(path.parent.name), pid, [json.loads(line) for line in lines])
