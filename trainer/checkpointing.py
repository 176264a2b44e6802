"""When a run's state is saved, and that only a healthy one is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trainer.checkpoint import Checkpoint, save_checkpoint
from trainer.durable import ensure_folder
from trainer.halving import Intervals
from trainer.spec import RunSpec


class Checkpointing:
    """The checkpoints of one run in this process, by steps and by time."""

    def __init__(self, home: Path, folder: Path, spec: RunSpec, intervals: Intervals) -> None:
        """Save below `folder`, which lies in `home`."""
        self._home, self._folder, self._spec, self._intervals = home, folder, spec, intervals
        self._saved_step = 0
        self._saved_at = time.monotonic()
        self.saves = 0
        """How often this process saved."""
        self.seconds = 0.0
        """How long that took, altogether."""

    def begin(self, step: int) -> None:
        """Count steps and time from here on."""
        self._saved_step, self._saved_at = step, time.monotonic()

    def due(self, step: int) -> bool:
        """Whether the state after this step is to be saved."""
        return (
            step - self._saved_step >= self._intervals.checkpoint_every_steps
            or time.monotonic() - self._saved_at >= self._intervals.checkpoint_every_seconds
            or step == self._spec.total_steps
        )

    def save(self, checkpoint: Checkpoint, *, replacing: bool) -> None:
        """Publish a checkpoint; it survives a power cut when this returns.

        Raises:
            FloatingPointError: if a number of it isn't finite; the earlier ones stay.
            OSError: if it can't be written.
        """
        began = time.monotonic()
        check_finite(checkpoint.step, checkpoint.adapter)
        check_finite(checkpoint.step, checkpoint.optimizer)
        check_finite(checkpoint.step, checkpoint.best)
        ensure_folder(self._folder, self._home)
        save_checkpoint(self._folder, self._spec, checkpoint, replacing=replacing)
        self.saves += 1
        self.seconds += time.monotonic() - began
        self.begin(checkpoint.step)


def check_finite(step: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse numbers that no training goes on from.

    Raises:
        FloatingPointError: naming the tensor.
    """
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise FloatingPointError(
                f"expected finite numbers after step {step}, found others in {name};"
                " lower the learning rate"
            )
