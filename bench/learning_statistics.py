"""Accuracy, macro-F1 and their spread when the people, or the questions, had been others.

Rows of one user resemble each other, so the spread over users, who are drawn whole, is the one to
believe; that over queries is the smaller one that is usually printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

DRAWS = 2000

Predictions = Mapping[str, Sequence[tuple[str, str]]]
"""(true label, predicted label) of each query, by user."""
Values = npt.NDArray[np.float64]


def accuracy(pairs: Sequence[tuple[str, str]]) -> float:
    return sum(true == found for true, found in pairs) / len(pairs)


def macro_f1(pairs: Sequence[tuple[str, str]]) -> float:
    """Mean F1 of the labels that occur, as a truth or as a prediction."""
    labels = sorted({label for pair in pairs for label in pair})
    scores = []
    for label in labels:
        hits = sum(true == found == label for true, found in pairs)
        named = sum(true == label for true, _ in pairs) + sum(found == label for _, found in pairs)
        scores.append(2 * hits / named)
    return mean(scores)


def over_queries(values: Sequence[Values]) -> float:
    """Standard deviation of the mean when single queries are drawn, with replacement.

    Args:
        values: of each user's queries, one array a user.
    """
    dice = np.random.default_rng(0)
    together = np.concatenate(values)
    drawn = [dice.choice(together, len(together)).mean() for _ in range(DRAWS)]
    return float(np.std(drawn))


def over_users(values: Sequence[Values]) -> float:
    """The same when whole users are drawn."""
    dice = np.random.default_rng(0)
    sums = np.array([user.sum() for user in values])
    counts = np.array([len(user) for user in values])
    chosen = dice.integers(0, len(values), (DRAWS, len(values)))
    return float(np.std(sums[chosen].sum(1) / counts[chosen].sum(1)))


def spread(found: Predictions, against: Predictions | None = None) -> dict[str, float | None]:
    """Both standard errors of the accuracy, or of its difference to another's on the same queries.

    That over users is None where there is but one.
    """
    signed = []
    for user, pairs in found.items():
        right = np.array([float(true == said) for true, said in pairs])
        if against is not None:
            right -= np.array([float(true == said) for true, said in against[user]])
        signed.append(right)
    return {
        "se_queries": over_queries(signed),
        "se_users": over_users(signed) if len(signed) > 1 else None,
    }


def summary(runs: Sequence[Predictions], recency: Predictions | None) -> dict[str, Any]:
    """One method's figures over its seeds.

    Args:
        runs: its predictions, one a seed.
        recency: those of the prior that reads no text, to be compared with on the same queries.
    """
    flat = [[pair for pairs in run.values() for pair in pairs] for run in runs]
    accuracies = [accuracy(pairs) for pairs in flat]
    spreads = [spread(run) for run in runs]
    result: dict[str, Any] = {
        "accuracy": mean(accuracies),
        "by_seed": accuracies,
        "sd_seeds": stdev(accuracies) if len(runs) > 1 else None,
        "macro_f1": mean(macro_f1(pairs) for pairs in flat),
        "mean_of_users": mean(mean(accuracy(pairs) for pairs in run.values()) for run in runs),
        **_means(spreads),
    }
    if recency is not None:
        base = accuracy([pair for pairs in recency.values() for pair in pairs])
        result["minus_recency"] = {
            "accuracy": result["accuracy"] - base,
            **_means([spread(run, recency) for run in runs]),
        }
    return result


def _means(spreads: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for key in spreads[0]:
        values = [value for spread in spreads if (value := spread[key]) is not None]
        found[key] = mean(values) if values else None
    return found
