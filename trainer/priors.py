"""What labels alone say, without any text, and how that is joined with what a model says of one.

    score(label) = log p_own(label) + weight · (log-likelihood(label) - log p_global(label))

p_own counts one person's labels, the k-th last by decay**k, and `smoothing` more that are spread as
p_global, which is each label's share. A bare base model is a weak rival of p_own alone: it doesn't
know the person's labels, and how often each occurs, and how recently, is a much better predictor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trainer.correction import DEFAULT, Correction

Scores = npt.NDArray[np.float64]
"""Log-likelihoods [rows, labels], in a fixed order of the labels."""


def majority_accuracy(history: Sequence[str], holdout: Sequence[str]) -> float | None:
    """Share of holdout labels equal to the most frequent training label; ties: the first seen."""
    if not history or not holdout:
        return None
    majority = Counter(history).most_common(1)[0][0]
    return sum(label == majority for label in holdout) / len(holdout)


def recency_prior_accuracy(
    history: Sequence[tuple[int, str]], holdout: Sequence[tuple[int, str]]
) -> float | None:
    """Accuracy of always answering the label most frequent of late.

    Args:
        history: (example id, label) of the training side; ids grow with time.
        holdout: the same of the held-out side; each row sees only what arrived before it, or the
            whole history if nothing did.
    """
    if not history or not holdout:
        return None
    ordered = sorted(history)
    shares = {
        name: count / len(ordered) for name, count in Counter(name for _, name in ordered).items()
    }
    right = 0
    for example_id, label in holdout:
        seen = [name for other, name in ordered if other < example_id] or [n for _, n in ordered]
        weights = recency_weights(seen, shares, DEFAULT)
        right += max(weights, key=weights.__getitem__) == label
    return right / len(holdout)


def recency_weights(
    seen: Sequence[str], shares: Mapping[str, float], correction: Correction
) -> dict[str, float]:
    """p_own of each label, up to one factor, after these, oldest first."""
    weights = {label: correction.smoothing * share for label, share in shares.items()}
    for age, label in enumerate(reversed(seen)):
        weights[label] += correction.decay**age
    return weights


def global_shares(labels: Sequence[str], everybody: Sequence[str]) -> Scores:
    """p_global [labels], half a row added to each so that none is zero."""
    counts = Counter(everybody)
    weights = np.array([counts[label] + 0.5 for label in labels])
    found: Scores = weights / weights.sum()
    return found


def own_prior(
    seen: Sequence[str], labels: Sequence[str], shares: Scores, correction: Correction
) -> Scores:
    """log p_own [labels] after these, oldest first."""
    by_label = recency_weights(seen, dict(zip(labels, map(float, shares), strict=True)), correction)
    weights = np.array([by_label[label] for label in labels])
    found: Scores = np.log(weights / weights.sum())
    return found


def corrected(scores: Scores, prior: Scores, shares: Scores, correction: Correction) -> Scores:
    """The joined scores, normalised over the labels."""
    return normalised(prior + correction.weight * (scores - np.log(shares)))


def normalised(scores: Scores) -> Scores:
    """As log-probabilities over the labels."""
    found: Scores = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    return found
