"""The demo's progress bar: one line a phase, with step, loss and the time that is left."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PHASES = {
    "loading": "loading the model",
    "evaluating_before": "measuring the base model",
    "training": "training",
    "evaluating_after": "measuring the adapter",
    "evaluating_original": "measuring it on the original model",
    "exporting": "writing the adapter",
}


class DemoProgress:
    """Shows where the demo is; on a terminal it moves, elsewhere its end state is printed."""

    def __init__(self, console: Console) -> None:
        """Prepare to draw on `console`."""
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._task: TaskID | None = None
        self._name = ""

    def __enter__(self) -> DemoProgress:
        """Start to draw."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing; the line begun last counts as done unless something went wrong."""
        if kind is None:
            self._finish()
        self._bar.stop()

    def begin(self, name: str, total: int | None = None) -> None:
        """Start a line; the one before it counts as done."""
        self._finish()
        self._name = name
        self._task = self._bar.add_task(name, total=total, note="")

    def advance(self, done: int, total: int | None = None, note: str = "") -> None:
        """Set how far the current line is."""
        if self._task is not None:
            self._bar.update(self._task, completed=done, total=total, note=note)

    def watch(self, run: Mapping[str, Any]) -> None:
        """Show the status of a run as `GET /v1/runs/{id}` gives it."""
        phase = run["phase"]
        if phase not in PHASES:
            return
        if PHASES[phase] != self._name:
            self.begin(PHASES[phase])
        if phase == "training" and run["total_steps"]:
            loss = run["loss"]
            note = "" if loss is None else f"loss {loss:.3f}"
            self.advance(run["step"] or 0, run["total_steps"], note)
        elif phase.startswith("evaluating") and run["evaluating_total"]:
            self.advance(run["evaluated"] or 0, run["evaluating_total"])

    def _finish(self) -> None:
        if self._task is not None:
            total = self._bar.tasks[self._task].total or 1
            self._bar.update(self._task, completed=total, total=total)
