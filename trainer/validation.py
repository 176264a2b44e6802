"""Early stopping: a part of the training side is held back, and the best adapter on it is kept.

    train ─┬─ fitted ──────▶ steps ─┬──────┬──────┬── …
           └─ validated ──▶ measured ┴──────┴──────┴── the adapter with the least NLL is the result

The holdout stays out of it: it is read once per version. Which examples are held back is a function
of the seed and the ids; those with the same normalised input go together. The measurements and the
best adapter so far are part of the checkpoint, so that a resumed run chooses as one process would.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.dataset import Dataset
from trainer.evaluate import Evaluation
from trainer.lora import LoraAdapter
from trainer.spec import RunSpec


@dataclass(frozen=True)
class Measured:
    """The adapter on the examples held back, after some step."""

    step: int
    evaluation: Evaluation


@dataclass(frozen=True)
class ValidationState:
    """What a checkpoint remembers beside the best adapter's tensors."""

    ids: tuple[int, ...] = ()
    measured: tuple[Measured, ...] = ()
    best_step: int | None = None


class Validation:
    """The examples held back in one run, and what was measured on them; off without any."""

    def __init__(self, spec: RunSpec) -> None:
        """Nothing is held back before `begin`."""
        self._spec = spec
        self._every = steps_between(spec)
        self.ids: tuple[int, ...] = ()
        self.fitted_ids: tuple[int, ...] = spec.train_example_ids
        """The spec's training examples that are trained on, also those forgotten."""
        self._measured: list[Measured] = []
        self._best_step: int | None = None
        self.best: Mapping[str, np.ndarray] = {}
        """The tensors of the best adapter so far; none before the first measurement."""

    def begin(
        self,
        data: Dataset,
        state: ValidationState | None = None,
        best: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Hold back what `state` names, with what it knows; without one, choose."""
        if state is None:
            training = self._spec.training
            ids = self._spec.train_example_ids
            self.ids = choose(ids, data.same_input, training.seed, training.validation_fraction)
        else:
            self.ids, self._best_step, self.best = state.ids, state.best_step, best or {}
            self._measured = list(state.measured)
        held_back = set(self.ids)
        self.fitted_ids = tuple(i for i in self._spec.train_example_ids if i not in held_back)
        data.hold_back(self.ids)
        self.forget(data)

    def forget(self, data: Dataset) -> None:
        """Drop the scores of examples that are no longer in `data`."""
        self._measured = [
            Measured(one.step, one.evaluation.only(data.validation)) for one in self._measured
        ]

    def due(self, step: int, data: Dataset) -> bool:
        """Whether the adapter after this step is to be measured now."""
        if not data.validation or step == 0 or (self._measured and self._measured[-1].step >= step):
            return False
        return step % self._every == 0 or step == self._spec.total_steps

    def take(self, step: int, evaluation: Evaluation, adapter: LoraAdapter) -> None:
        """Note a measurement, and keep the adapter if it is the best.

        It is compared with the best so far on the examples that both were measured on.
        """
        self._measured.append(Measured(step, evaluation))
        best = self._best()
        if best is None or mean_nll(evaluation) < mean_nll(best):
            self._best_step, self.best = step, adapter.to_arrays()

    @property
    def exhausted(self) -> bool:
        """Whether as many measurements as the patience allows were no better."""
        patience = self._spec.training.patience
        later = [one for one in self._measured if one.step > (self._best_step or 0)]
        return patience is not None and len(later) >= patience

    def restore(self, adapter: LoraAdapter) -> None:
        """Give the adapter the values of the best one, if there is one."""
        if self.best:
            adapter.load_arrays(self.best)

    def state(self) -> ValidationState:
        """For the checkpoint."""
        return ValidationState(self.ids, tuple(self._measured), self._best_step)

    def report(self, data: Dataset) -> dict[str, Any] | None:
        """For the manifest; None if nothing was held back. No text and no label is in it."""
        if not self.ids:
            return None
        labels = {example.id: example.label for example in data.validation.values()}
        return {
            "examples": len(data.validation),
            "every_steps": self._every,
            "patience": self._spec.training.patience,
            "measured": [
                {"step": one.step, **one.evaluation.summary(labels)} for one in self._measured
            ],
            "chosen_step": self._best_step,
        }

    def _best(self) -> Evaluation | None:
        for one in self._measured:
            if one.step == self._best_step:
                return one.evaluation
        return None


def steps_between(spec: RunSpec) -> int:
    """Steps from one measurement to the next: about half a pass over the training examples."""
    return max(1, len(spec.train_example_ids) // (2 * spec.training.batch_size))


def mean_nll(evaluation: Evaluation) -> float:
    """What is to be least: the mean label NLL, or without declared labels the answers'."""
    values = [row.answer_nll if row.label_nll is None else row.label_nll for row in evaluation.rows]
    return sum(values) / len(values) if values else float("inf")


def choose(
    ids: Sequence[int], same_input: Mapping[int, int], seed: int, fraction: float
) -> tuple[int, ...]:
    """The ids to hold back: about this share of them, in their order, and never all.

    Args:
        ids: of the training side.
        same_input: the first id with the same normalised input, of each that is at hand.
        seed: of the run.
        fraction: from 0 to below 1.
    """
    wanted = round(fraction * len(ids))
    groups: dict[int, list[int]] = {}
    for one in ids:
        groups.setdefault(same_input.get(one, one), []).append(one)
    chosen: set[int] = set()
    for first in sorted(groups, key=lambda i: _digest(seed, i)):
        if len(chosen) + len(groups[first]) <= min(wanted, len(ids) - 1):
            chosen.update(groups[first])
    return tuple(one for one in ids if one in chosen)


def _digest(seed: int, example_id: int) -> bytes:
    return hashlib.sha256(f"validation:{seed}:{example_id}".encode()).digest()
