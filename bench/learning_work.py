"""Parts of the learning bench as they are finished, so that an interrupted one goes on."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.frontier_records import Records
from bench.learning_rows import LabelledText
from bench.learning_student import Arrays, Student, Trained
from trainer.lora import LoraAdapter
from trainer.priors import Scores
from trainer.safetensors_file import SafetensorsFile, write_safetensors


class Work:
    """A folder of finished parts; each is found again by what decides its numbers."""

    def __init__(self, folder: Path, model: str, task: object) -> None:
        """Parts of this model, named by the hash of its weights, and of this task."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._records = Records(folder / "parts.jsonl")
        self._prefix = hashlib.sha256(repr((model, task)).encode()).hexdigest()

    def part(self, name: str, make: Callable[[], dict[str, Any]], *decides: object) -> Any:
        """What `make` gives, made once for the same name and `decides`."""
        key = f"{name}/{self._key(*decides)}"
        found = self._records.get(key)
        if found is None:
            print(f"  {name}", file=sys.stderr, flush=True)
            found = self._records.add(key, json.loads(json.dumps(make())))
        return found

    def seeded(
        self,
        name: str,
        make: Callable[[int], dict[str, Any]],
        seeds: Sequence[int],
        *decides: object,
    ) -> list[Any]:
        """The same part for every seed."""
        return [
            self.part(f"{name}, seed {seed}", partial(make, seed), seed, *decides) for seed in seeds
        ]

    def keep_adapter(self, adapter: LoraAdapter, name: str, *decides: object) -> None:
        """Write an adapter's tensors; at once or not at all."""
        path = self._adapter_path(name, *decides)
        unfinished = path.with_suffix(".tmp")
        write_safetensors(unfinished, adapter.to_arrays(), {})
        unfinished.replace(path)

    def adapter(self, name: str, *decides: object) -> Arrays | None:
        """The tensors of a kept adapter."""
        path = self._adapter_path(name, *decides)
        if not path.exists():
            return None
        file = SafetensorsFile(path)
        return {key: np.array(file.load(key)) for key in file.names()}

    def _adapter_path(self, name: str, *decides: object) -> Path:
        return self._folder / f"{name.replace('/', '-')}-{self._key(*decides)}.safetensors"

    def _key(self, *decides: object) -> str:
        return hashlib.sha256(repr((self._prefix, *decides)).encode()).hexdigest()[:16]


def asked(
    student: Student,
    adapter: LoraAdapter | None,
    rows_of: Mapping[str, Sequence[LabelledText]],
) -> dict[str, list[list[float]]]:
    """A model's scores of each user's rows, JSON-able."""
    users = [user for user, rows in rows_of.items() for _ in rows]
    flat = student.scores(adapter, [row for rows in rows_of.values() for row in rows])
    found: dict[str, list[list[float]]] = {user: [] for user in rows_of}
    for user, scores in zip(users, flat, strict=True):
        found[user].append([round(float(score), 5) for score in scores])
    return found


def as_scores(part: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, Scores]:
    """What `asked` gave, as arrays."""
    return {user: np.array(rows) for user, rows in part.items()}


def trained_part(
    student: Student, trained: Trained, rows_of: Mapping[str, Sequence[LabelledText]]
) -> dict[str, Any]:
    """A trained adapter's scores and cost, and its losses."""
    losses = [round(loss, 5) for loss in trained.losses]
    return {
        "scores": asked(student, trained.adapter, rows_of),
        "cost": trained.cost(),
        "losses": losses,
    }
