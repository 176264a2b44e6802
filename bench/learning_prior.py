"""The three numbers of the correction by a user's own labels (`trainer/priors.py`), chosen.

They are chosen by the mean label NLL of the histories' cuts; `choose_correction` is given nothing
else. p_global is everybody's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from bench.learning_rows import History, LabelledText
from trainer.correction import Correction
from trainer.priors import Scores, corrected, normalised, own_prior

SMOOTHINGS = (0.25, 0.5, 1.0, 2.0, 4.0)
DECAYS = (0.7, 0.8, 0.9, 0.95, 1.0)
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)


def user_prior(
    rows: Sequence[LabelledText], labels: Sequence[str], shares: Scores, correction: Correction
) -> Scores:
    """log p_own [labels] after these rows."""
    return own_prior([row.label for row in rows], labels, shares, correction)


def label_nll(scores: Scores, rows: Sequence[LabelledText], labels: Sequence[str]) -> Scores:
    """-log of the true label's share of the labels' probability, per row."""
    places = [labels.index(row.label) for row in rows]
    found: Scores = -normalised(scores)[np.arange(len(rows)), places]
    return found


def choose_correction(
    histories: Mapping[str, History],
    cut_scores: Mapping[str, Scores] | None,
    labels: Sequence[str],
    shares: Scores,
) -> tuple[Correction, float]:
    """The correction with the least mean NLL over all rows of the cuts, and that NLL.

    Args:
        histories: of each user; the prior of a cut is that of the rows before it.
        cut_scores: a model's scores of each user's cut, or None for the prior alone.
        labels: of the task.
        shares: everybody's.
    """
    best: tuple[float, Correction] | None = None
    weights = (0.0,) if cut_scores is None else WEIGHTS
    for smoothing, decay in product(SMOOTHINGS, DECAYS):
        prior_of = Correction(smoothing, decay, 0.0)
        priors = {
            user: user_prior(history.before_cut, labels, shares, prior_of)
            for user, history in histories.items()
        }
        for weight in weights:
            correction = Correction(smoothing, decay, weight)
            losses = [
                label_nll(
                    corrected(
                        _scores_of(cut_scores, user, history, labels),
                        priors[user],
                        shares,
                        correction,
                    ),
                    history.cut,
                    labels,
                )
                for user, history in histories.items()
                if history.cut
            ]
            nll = float(np.concatenate(losses).mean())
            if best is None or nll < best[0]:
                best = (nll, correction)
    assert best is not None
    return best[1], best[0]


def _scores_of(
    cut_scores: Mapping[str, Scores] | None, user: str, history: History, labels: Sequence[str]
) -> Scores:
    if cut_scores is None:
        return np.zeros((len(history.cut), len(labels)))
    return cut_scores[user]
