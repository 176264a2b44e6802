"""The same runs once more, undisturbed: same specs, same examples, a home of its own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import insert
from sqlmodel import select

from bench.recovery_notes import of_run
from bench.service_load import BenchError
from service.home import Home
from service.runs.run_spec import SPEC_NAME
from service.runs.worker_process import WorkerProcess
from service.settings import Settings
from storage.database import Database
from storage.split import text_hash
from storage.tables import Adapter, Example


def insert_examples(home: Home, kept: Mapping[int, tuple[str, str, str]]) -> None:
    """Give a home that has the adapters the examples ``{id: (adapter, input, label)}``."""
    with Database(home.database) as database, database.write() as session:
        adapters = {adapter.name: adapter for adapter in session.exec(select(Adapter))}
        rows = [
            {
                "id": one,
                "adapter_id": adapters[name].id,
                "input": text,
                "label": label,
                "split": "train",
                "status": "pending",
                "text_hash": text_hash(adapters[name].key, text),
            }
            for one, (name, text, label) in sorted(kept.items())
        ]
        session.execute(insert(Example), rows)


def train(home: Home, original: Home, run_id: int, worker: str) -> None:
    """Do a run with the spec that it had in another home, from its start to its end.

    The worker is started as the daemon starts it, and nothing else is.

    Raises:
        BenchError: it doesn't finish.
    """
    home.run(run_id).mkdir()
    shutil.copyfile(original.run(run_id) / SPEC_NAME, home.run(run_id) / SPEC_NAME)
    process = WorkerProcess(Settings(home=home.path, worker_module=worker, nice=0), home, run_id)
    for _ in process.lines():
        pass
    code = process.wait()
    process.close()
    if code != 0:
        raise BenchError(f"run {run_id} without kills ended with {code}: {home.run(run_id)}")


def same_losses(notes: Path, undisturbed: Path, run_id: int) -> bool:
    """Whether a run had the same figures at every step, each time that it did the step."""
    found, expected = of_run(notes, run_id), of_run(undisturbed, run_id)
    return bool(expected.steps) and found.steps == expected.steps and not found.differing


def same_adapter(home: Home, undisturbed: Home, adapter_id: int, run_id: int) -> bool:
    """Whether both homes' versions of a run have the same weights, byte for byte."""
    path = f"{home.version_path(adapter_id, run_id)}/adapter_model.safetensors"
    weights = (undisturbed.path / path).read_bytes()
    return bool(weights) and (home.path / path).read_bytes() == weights
