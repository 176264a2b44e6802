"""Which precision is the knee of the frontier: where more bytes stop buying much exactness.

The points that matter are those that no other beats in both bytes and gradient error. Both axes are
scaled to [0, 1] over these points, and the knee is the one farthest below the chord from the
cheapest to the most exact of them (Satopaa et al., "Finding a Kneedle in a Haystack", 2011).

Why the gradient error decides and not the holdout loss: it has no noise of the order of the data or
of the adapter's start, so two runs of the bench name the same knee; and what it measures, how far
each training step goes astray, is what a precision is answerable for. The holdout loss is the
check: `within_spread` says whether the knee's loss is within the best one's spread over the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any


@dataclass(frozen=True)
class Point:
    """One precision."""

    name: str
    bytes_per_parameter: float
    gradient_change: float


def undominated(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats or equals in both respects, the cheapest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.bytes_per_parameter, p.gradient_change)):
        if not kept or point.gradient_change < kept[-1].gradient_change:
            kept.append(point)
    return kept


def find_knee(points: Sequence[Point]) -> Point:
    """The point of `undominated` farthest below the chord of its ends; the cheapest of equals.

    Raises ValueError without points.
    """
    kept = undominated(points)
    if not kept:
        raise ValueError("expected measured precisions, found none: run the bench first")
    if len(kept) < 3:
        return kept[0]
    first, last = kept[0], kept[-1]
    width = last.bytes_per_parameter - first.bytes_per_parameter
    height = first.gradient_change - last.gradient_change

    def below_chord(point: Point) -> float:
        x = (point.bytes_per_parameter - first.bytes_per_parameter) / width
        y = (point.gradient_change - last.gradient_change) / height
        return 1 - x - y

    return max(kept, key=below_chord)


def holdout_check(losses: Mapping[str, Sequence[float]], knee: str) -> dict[str, Any]:
    """The knee's mean holdout loss beside the best precision's, and the latter's spread over seeds.

    `within_spread` is None for a single seed, which has no spread.
    """
    best = min(losses, key=lambda name: mean(losses[name]))
    spread = max(losses[best]) - min(losses[best]) if len(losses[best]) > 1 else None
    difference = mean(losses[knee]) - mean(losses[best])
    return {
        "best": best,
        "best_loss": mean(losses[best]),
        "knee_loss": mean(losses[knee]),
        "spread_over_seeds": spread,
        "within_spread": None if spread is None else difference <= spread,
    }
