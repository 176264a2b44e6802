"""What a language model has to beat; and any scores joined with what a user's labels say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.learning_prior import choose_correction, user_prior
from bench.learning_rows import History, LabelledText, PersonalTask
from bench.learning_statistics import Predictions, summary
from bench.learning_student import Student
from bench.learning_words import word_scores, words_installed
from bench.learning_work import Work, as_scores, asked
from trainer.correction import Correction
from trainer.priors import Scores, corrected, global_shares

Runs = dict[str, list[Predictions]]
"""Each method's answers, one entry a seed."""


class Priors:
    """Users by their labels, and everybody's shares."""

    def __init__(
        self,
        histories: Mapping[str, History],
        donors: Sequence[LabelledText],
        labels: tuple[str, ...],
    ) -> None:
        """Everybody is the donors, or where there are none the users themselves."""
        own = [row for history in histories.values() for row in history.rows]
        self._histories, self._labels = histories, labels
        self._shares = global_shares(labels, [row.label for row in donors or own])

    def choose(self, cut_scores: Mapping[str, Scores] | None) -> dict[str, Any]:
        """See `choose_correction`; JSON-able."""
        correction, nll = choose_correction(self._histories, cut_scores, self._labels, self._shares)
        return {"correction": vars(correction), "cut_nll": nll}

    def join(self, scores: Mapping[str, Scores], correction: Correction) -> dict[str, Scores]:
        """Scores of rows that came after the history, joined with the prior of all of it."""
        joined = {}
        for user, found in scores.items():
            rows = self._histories[user].rows
            prior = user_prior(rows, self._labels, self._shares, correction)
            joined[user] = corrected(found, prior, self._shares, correction)
        return joined


def answers(task: PersonalTask, scores: Mapping[str, Scores]) -> Predictions:
    """(true, predicted) label of each query: the first of the highest scores."""
    return {
        user: [
            (row.label, task.labels[int(best)])
            for row, best in zip(rows, scores[user].argmax(axis=1), strict=True)
        ]
        for user, rows in task.queries.items()
    }


@dataclass(frozen=True)
class References:
    """The majority, the labels' own prior, the bare base model and the word model."""

    runs: Runs
    """Of those that have no scores."""
    scores: Mapping[str, list[dict[str, Scores]]]
    """Of those that read the text."""
    corrections: Mapping[str, Mapping[str, float]]
    """Of these that can be joined with the prior."""
    chosen: Mapping[str, Any]
    skipped: Mapping[str, str]

    @classmethod
    def of(cls, task: PersonalTask, work: Work, student: Student) -> References:
        """All of them on one task."""
        priors = Priors(task.histories, task.donors, task.labels)
        chosen = {"recency_prior": priors.choose(None)}
        silent = {u: np.zeros((len(rows), len(task.labels))) for u, rows in task.queries.items()}
        recency = priors.join(silent, Correction(**chosen["recency_prior"]["correction"]))
        zero = work.part("zero-shot", lambda: asked(student, None, task.queries))
        scores = {"zero_shot": [as_scores(zero)]}
        corrections = {}
        skipped = {}
        if words_installed():
            cuts, queries = _words(task)
            scores["words"] = [queries]
            chosen["words"] = priors.choose(cuts)
            corrections["words"] = chosen["words"]["correction"]
        else:
            skipped["words"] = "needs the extra demo"
        runs = {"majority": [_majority(task)], "recency_prior": [answers(task, recency)]}
        return cls(runs, scores, corrections, chosen, skipped)


def _majority(task: PersonalTask) -> Predictions:
    """Each user's most frequent label; ties: the first seen."""
    found = {}
    for user, rows in task.queries.items():
        counts = Counter(row.label for row in task.histories[user].rows)
        found[user] = [(row.label, counts.most_common(1)[0][0]) for row in rows]
    return found


def _words(task: PersonalTask) -> tuple[dict[str, Scores], dict[str, Scores]]:
    """The word model's scores of the cuts and of the queries.

    It learns from the donors, or where there are none from the history before what it is asked.
    """
    cuts = {user: history.cut for user, history in task.histories.items()}
    if task.donors:
        return (
            _word_scores(task.donors, cuts, task.labels),
            _word_scores(task.donors, task.queries, task.labels),
        )
    early: dict[str, Scores] = {}
    late: dict[str, Scores] = {}
    for user, history in task.histories.items():
        early |= _word_scores(history.before_cut, {user: history.cut}, task.labels)
        late |= _word_scores(history.rows, {user: task.queries[user]}, task.labels)
    return early, late


def _word_scores(
    training: Sequence[LabelledText],
    asked: Mapping[str, Sequence[LabelledText]],
    labels: Sequence[str],
) -> dict[str, Scores]:
    flat = word_scores(training, [row for rows in asked.values() for row in rows], labels)
    ends = np.cumsum([len(rows) for rows in asked.values()])
    return dict(zip(asked, np.split(flat, ends[:-1]), strict=True))


def table(runs: Runs) -> dict[str, Any]:
    """All methods' figures, each beside the prior that reads no text."""
    (recency,) = runs["recency_prior"]
    return {
        name: summary(found, None if name == "recency_prior" else recency)
        for name, found in runs.items()
    }
