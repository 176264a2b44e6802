"""A worker with two faults for bench.recovery to find: saves at the ends only, resumes wrongly."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from bench import recovery_worker
from trainer import checkpointing, run
from trainer.checkpoint import Checkpoint, load_newest_checkpoint, save_checkpoint
from trainer.spec import RunSpec


def seldom(folder: Path, spec: RunSpec, checkpoint: Checkpoint, **options: Any) -> None:
    if checkpoint.step in (0, spec.total_steps):
        save_checkpoint(folder, spec, checkpoint, **options)


def slightly_wrong(folder: Path, spec: RunSpec) -> Checkpoint | None:
    checkpoint = load_newest_checkpoint(folder, spec)
    if checkpoint is None:
        return None
    adapter = {
        name: np.nextafter(values, np.float32(np.inf))
        for name, values in checkpoint.adapter.items()
    }
    return dataclasses.replace(checkpoint, adapter=adapter)


checkpointing.save_checkpoint = seldom
run.load_newest_checkpoint = slightly_wrong
recovery_worker.main()
