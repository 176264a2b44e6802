"""A run's progress between the worker's lines and the database: gathered and thinned."""

import time
from collections.abc import Callable
from typing import Any

from service.runs.worker_events import (
    Checkpoint,
    EngineReport,
    Evaluating,
    Event,
    Failed,
    Forgot,
    Phase,
    Started,
    Step,
    Stopped,
)

SECONDS_BETWEEN_WRITES = 0.5
MOST_LOSSES = 1000
"""Points kept of the loss curve; when there are more, every second one goes."""


class Progress:
    """What the worker has said of one run, as values for the run's row."""

    def __init__(
        self,
        losses: list[list[float]],
        checkpoint_step: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on from the losses and the checkpoint that an earlier part of the run left."""
        self._clock = clock
        self._checkpoint_step = checkpoint_step
        self._losses = [list(point) for point in losses]
        self._stride = 1
        self._changed: dict[str, Any] = {}
        self._written_at = -SECONDS_BETWEEN_WRITES
        self.step: int | None = None
        self.stopped_because: str | None = None
        self.failed_because: str | None = None
        self.fails_again = False
        """Whether the failure's cause would come again."""

    def take(self, event: Event) -> bool:
        """Take an event in; True if it is worth a write even right after another one."""
        match event:
            case Started():
                self.step = event.resumed_from
                self._changed |= {
                    "step": event.resumed_from or 0,
                    "total_steps": event.total_steps,
                    "resumed_from": event.resumed_from,
                    "engine": event.engine,
                    "exact_resume": event.exact_resume,
                    "exact_resume_reason": event.exact_resume_reason,
                }
                self._take_checkpoint(event.resumed_from)
            case Phase():
                self._changed["phase"] = event.phase
                self._changed |= {"evaluated": None, "evaluating_total": None}
            case Evaluating():
                self._changed |= {"evaluated": event.done, "evaluating_total": event.total}
                return event.done == event.total
            case Step():
                self._take_step(event)
                return event.step == event.total
            case EngineReport():
                self._changed["engine"] = event.engine
            case Checkpoint():
                self._take_checkpoint(event.step)
                return False
            case Forgot():
                self._changed["forgotten"] = event.total
            case Stopped():
                self.step, self.stopped_because = event.step, event.reason
            case Failed():
                self.failed_because, self.fails_again = event.error, not event.again
            case _:
                return False
        return True

    @staticmethod
    def told(event: Event) -> dict[str, Any] | None:
        """What those who watch the run are told of an event: fields of the run. None: nothing."""
        match event:
            case Started():
                fields = {"total_steps", "resumed_from", "exact_resume", "exact_resume_reason"}
                return {"step": event.resumed_from or 0} | event.model_dump(include=fields)
            case Phase():
                return {"phase": event.phase}
            case Evaluating():
                return {"evaluated": event.done, "evaluating_total": event.total}
            case Step():
                fields = {"step", "epoch", "loss", "learning_rate"}
                return {"total_steps": event.total} | event.model_dump(include=fields)
            case Checkpoint():
                return {"step": event.step, "checkpoint_step": event.step}
            case Forgot():
                return {"forgotten": event.total}
            case _:
                return None

    def due(self, *, now: bool) -> dict[str, Any]:
        """The columns to write: those that changed, if the last write is long enough ago.

        With ``now`` they are due at once. Call `written` when they are on the disk.
        """
        if not now and self._clock() - self._written_at < SECONDS_BETWEEN_WRITES:
            return {}
        return dict(self._changed)

    def written(self) -> None:
        """What was due has been written."""
        self._changed.clear()
        self._written_at = self._clock()

    def _take_checkpoint(self, step: int | None) -> None:
        if step is not None and (self._checkpoint_step is None or step > self._checkpoint_step):
            self._changed["kills"] = 0  # they count as in a row until there is a new checkpoint
        self._checkpoint_step = self._changed["checkpoint_step"] = step

    def _take_step(self, event: Step) -> None:
        self.step = event.step
        self._changed |= {
            "step": event.step,
            "total_steps": event.total,
            "epoch": event.epoch,
            "loss": event.loss,
            "learning_rate": event.learning_rate,
        }
        # Steps after the last checkpoint come again when a run is resumed.
        while self._losses and self._losses[-1][0] >= event.step:
            self._losses.pop()
        if event.step % self._stride == 0 or event.step in (1, event.total):
            self._losses.append([event.step, round(event.loss, 6)])
        while len(self._losses) > MOST_LOSSES:
            self._stride *= 2
            self._losses = [point for point in self._losses if point[0] % self._stride == 0]
        self._changed["losses"] = self._losses
