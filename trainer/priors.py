"""Two predictors that read no text at all, as the mark an adapter has to beat.

A bare base model is a weak rival: it doesn't know the person's labels. How often each label occurs,
and how recently, is a much better one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

DECAY, SMOOTHING = 0.9, 0.5
"""The n-th last label weighs DECAY**n; SMOOTHING more are spread as over the whole history."""


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
    shares = Counter(label for _, label in ordered)
    right = 0
    for example_id, label in holdout:
        seen = [name for other, name in ordered if other < example_id] or [n for _, n in ordered]
        weights = {name: SMOOTHING * count / len(ordered) for name, count in shares.items()}
        for age, name in enumerate(reversed(seen)):
            weights[name] += DECAY**age
        right += max(weights, key=weights.__getitem__) == label
    return right / len(holdout)
