"""The learning bench's second task: forty people's film tags, a dozen rows each, and 352 donors.

    donors' rows ─▶ task adapter, made once, public ─▶ per user: a few steps on their own history
                                                   └─▶ + the user's label prior (learning_prior.py)

On a phone nobody else's history is there, so the task adapter never sees one of the forty.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.learning_plans import TagPlan
from bench.learning_references import Priors, References, Runs, answers, table
from bench.learning_rows import History, LabelledText, PersonalTask
from bench.learning_student import Arrays, Student
from bench.learning_work import Work, as_scores, asked
from trainer.correction import Correction
from trainer.lora import LoraAdapter
from trainer.priors import Scores


@dataclass(frozen=True)
class TagTraining:
    """How the forty are learned from; no query is in here."""

    student: Student
    donors: tuple[LabelledText, ...]
    plan: TagPlan
    work: Work

    def choose(self, histories: Mapping[str, History], seed: int) -> dict[str, Any]:
        """How many passes over a history, and which correction: the least NLL of the cuts."""
        priors = Priors(histories, self.donors, self.student.labels)
        cuts = {user: history.cut for user, history in histories.items()}
        start = self.task_adapter(seed)
        by_passes = {
            0: self.work.part(
                "cuts by the task adapter",
                lambda: asked(self.student, self._fresh(seed, start), cuts),
                *self.decides(seed),
            )
        }
        if most := max(self.plan.passes):
            after = self.work.part(
                "cuts after own passes",
                lambda: self._after_passes(histories, seed, start, most),
                *self.decides(seed, most),
            )
            by_passes |= {number: after[str(number)] for number in self.plan.passes if number}
        found = {n: priors.choose(as_scores(scores)) for n, scores in by_passes.items()}
        passes = min(found, key=lambda number: float(found[number]["cut_nll"]))
        return {"passes": passes, "by_passes": found}

    def task_adapter(self, seed: int) -> Arrays:
        """Trained on the donors' rows alone; made once."""
        name = f"task adapter, seed {seed}"
        if (kept := self.work.adapter(name, *self.decides(seed))) is not None:
            return kept
        adapter = self._fresh(seed)
        trained = self.student.train(adapter, self.donors, replace(self.plan.donors, seed=seed))
        self.work.part(name, trained.cost, *self.decides(seed))
        self.work.keep_adapter(adapter, name, *self.decides(seed))
        return adapter.to_arrays()

    def task_scores(self, seed: int, rows: Mapping[str, Sequence[LabelledText]]) -> dict[str, Any]:
        """What the task adapter makes of some rows, what it cost to make, and what a user costs."""
        start = self.task_adapter(seed)
        cost = self.work.part(f"task adapter, seed {seed}", dict, *self.decides(seed))
        began = time.process_time()
        scores = asked(self.student, self._fresh(seed, start), rows)
        seconds = time.process_time() - began
        return {"scores": scores, "cost": cost, "cpu_seconds_a_user": seconds / len(scores)}

    def personal_scores(
        self,
        seed: int,
        passes: int,
        histories: Mapping[str, History],
        rows: Mapping[str, Sequence[LabelledText]],
    ) -> dict[str, Any]:
        """What each user's own adapter makes of some rows; what a user costs, scoring included."""
        start = self.task_adapter(seed)
        began = time.process_time()
        scores: dict[str, Any] = {}
        for user, history in histories.items():
            adapter = self._fresh(seed, start)
            for number in range(1, passes + 1):
                self._one_pass(adapter, history.rows, seed, number)
            scores |= asked(self.student, adapter, {user: rows[user]})
        seconds = time.process_time() - began
        return {"scores": scores, "cpu_seconds_a_user": seconds / len(scores)}

    def decides(self, seed: int, passes: int | None = None) -> tuple[object, ...]:
        """All that decides the task adapter's numbers, or those after own passes."""
        general = (self.plan.shape, replace(self.plan.donors, seed=seed))
        return (
            general if passes is None else (*general, self.plan.personal, self.plan.newest, passes)
        )

    def _after_passes(
        self, histories: Mapping[str, History], seed: int, start: Arrays, most: int
    ) -> dict[str, Any]:
        """Scores of the cuts by user, after 1, 2, … passes over the rows before them."""
        found: dict[str, Any] = {str(number): {} for number in range(1, most + 1)}
        for user, history in histories.items():
            adapter = self._fresh(seed, start)
            for number in range(1, most + 1):
                self._one_pass(adapter, history.before_cut, seed, number)
                found[str(number)] |= asked(self.student, adapter, {user: history.cut})
        return found

    def _one_pass(
        self, adapter: LoraAdapter, rows: Sequence[LabelledText], seed: int, number: int
    ) -> None:
        """A pass over a user's newest rows, with an order and an optimizer of its own."""
        newest = rows[-self.plan.newest :]
        steps = -(-len(newest) // self.plan.personal.batch_size)
        settings = replace(self.plan.personal, steps=steps, seed=1000 * number + seed)
        self.student.train(adapter, newest, settings)

    def _fresh(self, seed: int, start: Arrays | None = None) -> LoraAdapter:
        return self.student.fresh(self.plan.shape, seed, start)


def measure_tags(training: TagTraining, task: PersonalTask, seeds: Sequence[int]) -> dict[str, Any]:
    """Every method's answers; all choices are made before, each from the histories alone.

    `ours_with_prior` is what the cuts have chosen: the task adapter as it is, or each user's own.
    """
    student, work = training.student, training.work
    chosen = training.choose(task.histories, seeds[0])
    by_passes, most = chosen["by_passes"], max(training.plan.passes)
    references = References.of(task, work, student)
    scores: dict[str, list[dict[str, Scores]]] = dict(references.scores)
    general = work.seeded(
        "queries by the task adapter",
        lambda seed: training.task_scores(seed, task.queries),
        seeds,
        training.plan.shape,
        training.plan.donors,
    )
    personal = work.seeded(
        "queries by own adapters",
        lambda seed: training.personal_scores(seed, most, task.histories, task.queries),
        seeds,
        *training.decides(0, most),
    )
    scores["task_adapter"] = [as_scores(part["scores"]) for part in general]
    scores["own_adapters"] = [as_scores(part["scores"]) for part in personal]
    corrections = {
        **references.corrections,
        "task_adapter": by_passes[0]["correction"],
        "own_adapters": by_passes[most]["correction"],
    }
    runs: Runs = dict(references.runs)
    for name, found in corrections.items():
        priors = Priors(task.histories, task.donors, task.labels)
        joined = [priors.join(one, Correction(**found)) for one in scores[name]]
        runs[f"{name}_with_prior"] = [answers(task, one) for one in joined]
    runs |= {name: [answers(task, one) for one in per_seed] for name, per_seed in scores.items()}
    ours = "own_adapters" if chosen["passes"] else "task_adapter"
    runs["ours_with_prior"] = runs[f"{ours}_with_prior"]
    return {
        **task.sizes(),
        "chosen": {**chosen, "ours": ours, "references": references.chosen},
        "methods": table(runs),
        "costs": {
            "task_adapter": [part["cost"] for part in general],
            "cpu_seconds_a_user": {
                "task_adapter": [part["cpu_seconds_a_user"] for part in general],
                "own_adapters": [part["cpu_seconds_a_user"] for part in personal],
            },
        },
        "skipped": references.skipped,
    }
