"""What every contestant is given: one base, one adapter to start from, the same batches in order.

A task is a JSON file beside the arrays it names. Contestants of other environments read it too, so
nothing of ours and no torch is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

IGNORED = -100
"""The label of a position without loss, as torch and all peers have it."""

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Example:
    """Token ids; only those of the answer carry loss."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *self.answer]

    @property
    def labels(self) -> list[int]:
        """One per id; the first id has none, since nothing predicts it."""
        return [IGNORED] * len(self.prompt) + list(self.answer)


Batch = tuple[Example, ...]


@dataclass(frozen=True)
class Task:
    """One training, the same for all contestants."""

    base: str
    """A Hugging Face folder with the effective weights in fp32."""
    weights: dict[str, str]
    """Our weight files by format; the first one's effective weights are the base's."""
    adapter: str
    """safetensors: the adapter to start from, under PEFT's keys."""
    rank: int
    alpha: float
    layers: int | None
    """How many layers, counted from the top, have an adapter; None: all."""
    learning_rate: float
    max_grad_norm: float
    threads: int
    batches: tuple[Batch, ...]
    """One per step."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Task:
        raw = json.loads(path.read_text())
        batches = tuple(
            tuple(Example(tuple(e["prompt"]), tuple(e["answer"])) for e in batch)
            for batch in raw.pop("batches")
        )
        return cls(**raw, batches=batches)


def padded(batch: Sequence[Example]) -> tuple[list[list[int]], list[list[int]]]:
    """Ids and labels [batch, longest], filled up on the right with id 0 and without loss."""
    longest = max(len(example.ids) for example in batch)
    ids, labels = [], []
    for example in batch:
        missing = longest - len(example.ids)
        ids.append(example.ids + [0] * missing)
        labels.append(example.labels + [IGNORED] * missing)
    return ids, labels
