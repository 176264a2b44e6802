"""A home with a tiny model and one adapter's examples, and the worker as the daemon starts it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlmodel import col, select

from storage import adapters, clients, examples
from storage.database import Database
from storage.tables import Adapter, Example
from tests.trainer.child import Child

LABELS = ["now", "later", "mute"]
WORDS = ["parcel", "meeting", "sale", "mum", "train", "bill", "game", "rain", "class", "lunch"]
CANARY = "canary-7731"


def fill(home: Path) -> None:
    """One adapter's examples: ids 1..48 train, 49..80 held out."""
    with Database(home / "lorad.db") as database, database.write() as session:
        owner = clients.put(session, "owner", b"\0" * 32)
        adapter = adapters.create(
            session,
            Adapter(
                client_id=owner.id,
                name="phone",
                base_model="tiny",
                base_hash="sha256:0",
                method="first_order",
                rank=4,
                alpha=8.0,
                targets=[],
                use_rslora=False,
                labels=LABELS,
                max_tokens=256,
                too_long="cut",
                training={},
            ),
        )
        given = [
            examples.NewExample(
                input=f"{CANARY} {WORDS[i % 10]} number {i}",
                label=LABELS[i % 10 % 3],
                split="train" if i < 48 else "holdout",
            )
            for i in range(80)
        ]
        examples.add(session, adapter, given)


def write_spec(
    home: Path,
    run_id: int,
    engine: str = "torch_cpu",
    begin_with: int | None = None,
    **training: Any,
) -> None:
    """A run over all of them: twelve steps, a checkpoint every four.

    ``begin_with``: the run whose version it begins with.
    """
    version = f"adapters/1/versions/run-{begin_with or 0:08d}"
    manifest = json.loads((home / "models/tiny/manifest.json").read_text())
    spec = {
        "spec_version": 1,
        "run_id": run_id,
        "adapter_id": 1,
        "adapter": "phone",
        "client": "owner",
        "method": "first_order",
        "model": {"name": "tiny", "base_hash": manifest["base_hash"]},
        "rank": 4,
        "alpha": 8.0,
        "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        "use_rslora": False,
        "labels": LABELS,
        "max_tokens": 256,
        "too_long": "cut",
        "train_example_ids": list(range(1, 49)),
        "holdout_example_ids": list(range(49, 81)),
        "active_version": None,
        "warm_start": begin_with and {"version": begin_with, "path": version},
        "training": {"steps": 12, "learning_rate": 5e-3, "checkpoint_every_steps": 4, **training},
        "engine": engine,
        "threads": 1,
    }
    folder = home / "runs" / str(run_id)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(spec))


class Worker(Child):
    """A running worker; iterate to read its events."""

    def __init__(
        self,
        home: Path,
        run_id: int,
        *script: Mapping[str, Any],
        nice: int = 0,
        halvings: int = 0,
        forked: bool = True,
    ) -> None:
        """Start it; with a script (see `tests.trainer.scripted_worker`) things happen to it."""
        plain = ["trainer.worker"]
        scripted = ["tests.trainer.scripted_worker", json.dumps(script)]
        super().__init__(
            home / f"worker-{run_id}.log",
            *(scripted if script else plain),
            *("--home", str(home)),
            *("--nice", str(nice)),
            *("--halvings", str(halvings)),
            *("--run", str(run_id)),
            seconds=180,
            forked=forked,
        )

    def until(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        seen = []
        for found in self:
            seen.append(found)
            if found["event"] == event and fields.items() <= found.items():
                return seen
        raise AssertionError(f"no {event} {fields}; log:\n{self.log_text()}")


def at(do: str, *ids: int, **event: Any) -> dict[str, Any]:
    """One thing that a script does when the worker has said such an event."""
    return {"at": event, "do": do, "ids": ids}


def run_to_the_end(
    home: Path, run_id: int, *script: Mapping[str, Any], halvings: int = 0
) -> list[dict[str, Any]]:
    worker = Worker(home, run_id, *script, halvings=halvings)
    code, events = worker.wait()
    assert code == 0, worker.log_text()
    return events


def step_numbers(events: list[dict[str, Any]]) -> dict[int, tuple[float, float, float]]:
    return {
        event["step"]: (event["loss"], event["learning_rate"], event["grad_norm"])
        for event in events
        if event["event"] == "step"
    }


def manifest_of(home: Path, event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / event["path"] / "version.json").read_text())
    return found


def adapter_bytes(home: Path, run_id: int) -> bytes:
    folder = home / f"adapters/1/versions/run-{run_id:08d}"
    return (folder / "adapter_model.safetensors").read_bytes()


def delete(home: Path, *ids: int) -> None:
    """Delete examples as the daemon does: the rows are gone when this returns."""
    with Database(home / "lorad.db") as database, database.write() as session:
        for row in session.exec(select(Example).where(col(Example.id).in_(ids))):
            session.delete(row)


def expire(home: Path, *ids: int) -> None:
    """Leave only the shells of examples."""
    with Database(home / "lorad.db") as database, database.write() as session:
        for row in session.exec(select(Example).where(col(Example.id).in_(ids))):
            row.input, row.label, row.text_hash, row.status = None, None, None, "expired"
            session.add(row)


def send_again(home: Path, example_id: int, text: str, label: str = "now") -> None:
    """Correct an example by its external id, or bring an expired one back to life."""
    with Database(home / "lorad.db") as database, database.write() as session:
        row = session.get(Example, example_id)
        assert row is not None
        row.input, row.label, row.text_hash, row.status = text, label, b"\1" * 32, "pending"
        row.changed_at += 1
        session.add(row)
