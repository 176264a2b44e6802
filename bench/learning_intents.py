"""The learning bench's first task: one person's 15 intents, from 300 rows and nobody's help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.learning_forward_only import forward_only
from bench.learning_peft import peft_installed, peft_train
from bench.learning_plans import IntentPlan
from bench.learning_prior import label_nll
from bench.learning_references import Priors, References, Runs, answers, table
from bench.learning_rows import History, PersonalTask
from bench.learning_student import Student, Trained
from bench.learning_work import Work, as_scores, asked, trained_part
from trainer.correction import Correction
from trainer.lora import LoraAdapter
from trainer.priors import Scores
from trainer.spec import TrainingSettings


@dataclass(frozen=True)
class IntentTraining:
    """How one person's intents are learned; no query is in here."""

    student: Student
    plan: IntentPlan
    work: Work

    def choose(self, history: History, seed: int) -> dict[str, Any]:
        """The passes, and forward-only training's rate, with the least label NLL on the cut.

        Trained on the rows before the cut, each number of passes with a schedule of its own. A
        curve has the cut's NLL and accuracy after every half pass.
        """
        curves = {}
        for epochs in self.plan.epochs:
            settings = replace(self.plan.settings, epochs=epochs, seed=seed)
            curves[epochs] = self.work.part(
                f"curve of {epochs:g} passes",
                partial(self._curve, history, settings),
                self.plan.shape,
                settings,
            )
        best = min(curves, key=lambda epochs: float(curves[epochs]["points"][-1]["label_nll"]))
        short = replace(
            self.plan.settings, steps=self.plan.rate_steps, schedule="constant", seed=seed
        )
        rates = {
            rate: self.work.part(
                f"forward-only at rate {rate:g}",
                partial(self._forwards_quality, history, short, rate),
                self.plan.shape,
                short,
            )
            for rate in self.plan.rates
        }
        return {
            "epochs": best,
            "curves": {f"{epochs:g}": curve["points"] for epochs, curve in curves.items()},
            "cut_scores": curves[best]["cut_scores"],
            "rate": min(rates, key=lambda rate: float(rates[rate]["label_nll"])),
            "rates": {f"{rate:g}": quality for rate, quality in rates.items()},
        }

    def _curve(self, history: History, settings: TrainingSettings) -> dict[str, Any]:
        total = settings.total_steps(len(history.before_cut))
        every = max(1, round(total / settings.epochs / 2))
        points: list[dict[str, float]] = []
        adapter = self.student.fresh(self.plan.shape, settings.seed)

        def look(step: int) -> None:
            if step % every == 0 or step == total:
                points.append({"step": step, **self._quality(adapter, history)})

        self.student.train(adapter, history.before_cut, settings, look)
        return {
            "points": points,
            "cut_scores": asked(self.student, adapter, {"cut": history.cut})["cut"],
        }

    def _forwards_quality(
        self, history: History, settings: TrainingSettings, rate: float
    ) -> dict[str, float]:
        adapter = self.student.fresh(self.plan.shape, settings.seed)
        forward_only(self.student, adapter, history.before_cut, settings, rate)
        return self._quality(adapter, history)

    def _quality(self, adapter: LoraAdapter, history: History) -> dict[str, float]:
        labels = self.student.labels
        scores = self.student.scores(adapter, history.cut)
        said = [labels[int(best)] for best in scores.argmax(axis=1)]
        right = [row.label == label for row, label in zip(history.cut, said, strict=True)]
        nll = float(label_nll(scores, history.cut, labels).mean())
        return {"label_nll": nll, "accuracy": sum(right) / len(right)}


def measure_intents(
    training: IntentTraining,
    task: PersonalTask,
    model_dir: Path,
    seeds: Sequence[int],
    rival_seeds: Sequence[int],
) -> dict[str, Any]:
    """Every method's answers; all choices are made before, each from the history alone."""
    student, plan, work = training.student, training.plan, training.work
    ((user, history),) = task.histories.items()
    chosen = training.choose(history, seeds[0])
    settings = replace(plan.settings, epochs=chosen["epochs"])
    references = References.of(task, work, student)
    skipped = dict(references.skipped)
    top = replace(plan.shape, layers=plan.top)

    def ours(seed: int) -> Trained:
        seeded = replace(settings, seed=seed)
        return student.train(student.fresh(plan.shape, seed), history.rows, seeded)

    def ours_top(seed: int) -> Trained:
        return student.train(student.fresh(top, seed), history.rows, replace(settings, seed=seed))

    def forwards(seed: int) -> Trained:
        adapter, seeded = student.fresh(plan.shape, seed), replace(settings, seed=seed)
        return forward_only(student, adapter, history.rows, seeded, chosen["rate"])

    def peft(seed: int) -> Trained:
        seeded = replace(settings, seed=seed)
        return peft_train(student, model_dir, history.rows, plan.shape, seeded)

    methods: dict[str, tuple[Callable[[int], Trained], Sequence[int], tuple[object, ...]]] = {
        "ours": (ours, seeds, (plan.shape, settings)),
        "ours_top": (ours_top, seeds, (top, settings)),
        "forward_only": (forwards, rival_seeds, (plan.shape, settings, chosen["rate"])),
        "peft": (peft, rival_seeds, (plan.shape, settings)),
    }
    if not peft_installed():
        del methods["peft"]
        skipped["peft"] = "needs the extra test"
    scores: dict[str, list[dict[str, Scores]]] = dict(references.scores)
    costs = {}
    for name, (make, of_seeds, decides) in methods.items():

        def part(seed: int, make: Callable[[int], Trained] = make) -> dict[str, Any]:
            return trained_part(student, make(seed), task.queries)

        parts = work.seeded(
            name,
            part,
            of_seeds,
            *decides,
        )
        scores[name] = [as_scores(part["scores"]) for part in parts]
        costs[name] = [part["cost"] for part in parts]
    runs: Runs = dict(references.runs)
    runs |= {name: [answers(task, one) for one in per_seed] for name, per_seed in scores.items()}
    priors = Priors(task.histories, task.donors, task.labels)
    own = priors.choose({user: np.array(chosen.pop("cut_scores"))})
    for name, found in {**references.corrections, "ours": own["correction"]}.items():
        joined = [priors.join(one, Correction(**found)) for one in scores[name]]
        runs[f"{name}_with_prior"] = [answers(task, one) for one in joined]
    return {
        **task.sizes(),
        "chosen": {**chosen, "ours": own, "references": references.chosen},
        "methods": table(runs),
        "costs": costs,
        "skipped": skipped,
    }
