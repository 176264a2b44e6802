"""The exact McNemar test: do two predictors differ on the same rows, or could it be chance?

Only the rows count on which exactly one of the two is right. If both were equally good, each of
those would fall to either side like a fair coin, so the p-value is a two-sided binomial one.
McNemar, "Note on the sampling error of the difference between correlated proportions or
percentages", Psychometrika 12 (1947).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb


@dataclass(frozen=True)
class PairedTest:
    """The outcome of one comparison over the same rows."""

    only_first: int
    """Rows that only the first predictor has right."""
    only_second: int
    """Rows that only the second predictor has right."""
    p_value: float
    """Two-sided; 1 if the two never disagree."""

    def to_json(self) -> dict[str, float | int]:
        """The three figures under their own names."""
        return {
            "only_first": self.only_first,
            "only_second": self.only_second,
            "p_value": self.p_value,
        }


def paired_test(first_right: Sequence[bool], second_right: Sequence[bool]) -> PairedTest:
    """Compare two predictors row by row.

    Raises:
        ValueError: the two sequences don't speak of the same number of rows.
    """
    if len(first_right) != len(second_right):
        raise ValueError(
            f"expected both predictors on the same rows, found {len(first_right)} and "
            f"{len(second_right)} rows; compare them on one holdout"
        )
    pairs = list(zip(first_right, second_right, strict=True))
    only_first = sum(a and not b for a, b in pairs)
    only_second = sum(b and not a for a, b in pairs)
    return PairedTest(only_first, only_second, binomial_two_sided(only_first, only_second))


def binomial_two_sided(heads: int, tails: int) -> float:
    """Probability that a fair coin lands at least as unevenly as `heads` to `tails`."""
    tosses = heads + tails
    tail = sum(comb(tosses, k) for k in range(min(heads, tails) + 1))
    return float(min(1.0, 2 * tail / 2**tosses))
