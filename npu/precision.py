"""Which weight format each frozen matrix gets: the cheapest that the gradients can bear.

A calibration (`trainer/calibration`) measures for every matrix and every candidate format how far
the adapter's gradients move from those of the fp32 weights if only this matrix has that format. The
changes of several matrices are taken to be independent, so their squares add:

    estimate(mix)^2 = sum over matrices of change(matrix, format)^2

From a start where each matrix has the candidate that changes least, downgrades are made one by one,
those first that add the least squared change for a byte saved:

    most exact ─▶ ... worth it, inside the tolerance ... ─▶ ... only for the budget ... ─▶ smallest

Worth it: past the knee of the curve a byte saved costs more and more, and the tolerance is no
reason to pay any price. (SmolLM2-135M's Q4_1 weights as Q4_0 save a tenth of their bytes and change
the gradients four hundred times as much.)

Nothing here measures or computes a product; the same input gives the same mix.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from npu.weight_layout import BLOCK, BLOCK_FORMATS, WeightFormat

CANDIDATES: tuple[WeightFormat, ...] = ("int4", "int4_min", "int8", "fp16")
"""All formats there are, small ones first."""

Reason = Literal["exact", "tolerance", "budget"]
"""Why a matrix has its format: it is the one that changes least, the gradients bear it, or only the
memory budget asked for it."""


class BudgetError(ValueError):
    """No mix fits the budget; `least` is the smallest there is, in bytes."""

    def __init__(self, least: int, budget: int) -> None:
        """Say what would do."""
        super().__init__(
            f"expected a budget of at least {least} bytes, which the smallest formats of all "
            f"matrices take, found {budget}: allow more"
        )
        self.least = least


@dataclass(frozen=True)
class Candidate:
    """A format that a matrix could have."""

    format: WeightFormat
    bytes: int
    change: float
    """||g' - g|| / ||g||: g the adapter's gradients with fp32 weights, g' with this matrix alone in
    this format; 0 or more."""

    def __post_init__(self) -> None:
        """Refuse a change that is no measurement. Raises ValueError."""
        if not (math.isfinite(self.change) and self.change >= 0):
            raise ValueError(
                f"expected a finite change of 0 or more for {self.format}, found {self.change}: "
                "measure again or leave the candidate out"
            )


@dataclass(frozen=True)
class Mix:
    """A format for every matrix, and what it should cost."""

    formats: Mapping[str, WeightFormat]
    reasons: Mapping[str, Reason]
    bytes: int
    estimate: float
    """The change of the whole adapter gradient, were the matrices' changes independent."""
    tolerance: float
    budget: int | None
    """Bytes; None for none."""

    @property
    def excess(self) -> float:
        """By how much the estimate exceeds the tolerance, because the budget asked for it; or 0."""
        return max(0.0, self.estimate - self.tolerance)


def candidate_formats(K: int) -> tuple[WeightFormat, ...]:
    """The formats that a matrix with K columns can have."""
    return tuple(f for f in CANDIDATES if f not in BLOCK_FORMATS or K % BLOCK == 0)


def choose_mix(
    candidates: Mapping[str, Sequence[Candidate]],
    *,
    tolerance: float,
    budget: int | None = None,
    price: float = math.inf,
) -> Mix:
    """The cheapest mix found inside the tolerance; a cheaper one if the budget is smaller still.

    Args:
        candidates: of every matrix by name, at least one each.
        tolerance: the change of the whole adapter gradient that is accepted.
        budget: bytes for all matrices together; None for no limit.
        price: squared change that a byte saved may cost, unless the budget asks for it.

    Raises:
        BudgetError: not even the smallest candidates fit.
        ValueError: a matrix without a candidate, or a negative tolerance.
    """
    if not tolerance >= 0:
        raise ValueError(f"expected a tolerance of 0 or more, found {tolerance}: give a share of 1")
    ladders = {name: _ladder(name, candidates[name]) for name in sorted(candidates)}
    least = sum(ladder[-1].bytes for ladder in ladders.values())
    if budget is not None and budget < least:
        raise BudgetError(least, budget)
    chosen = {name: ladder[0] for name, ladder in ladders.items()}
    reasons: dict[str, Reason] = dict.fromkeys(ladders, "exact")
    size = sum(candidate.bytes for candidate in chosen.values())
    squares = math.fsum(candidate.change**2 for candidate in chosen.values())
    refused: set[str] = set()
    for step in _steps(ladders):
        over = budget is not None and size > budget
        worth_it = step.name not in refused and step.added <= price * step.saved
        inside = worth_it and squares + step.added <= tolerance**2
        if not (over or inside):
            # What follows of this matrix builds on this step; smaller steps of others may still do.
            refused.add(step.name)
            continue
        chosen[step.name] = step.candidate
        reasons[step.name] = "tolerance" if inside else "budget"
        size -= step.saved
        squares += step.added
    return Mix(
        formats={name: candidate.format for name, candidate in chosen.items()},
        reasons=reasons,
        bytes=size,
        estimate=math.sqrt(math.fsum(candidate.change**2 for candidate in chosen.values())),
        tolerance=tolerance,
        budget=budget,
    )


def propose_mixes(
    candidates: Mapping[str, Sequence[Candidate]], budgets: Sequence[int]
) -> list[Mix]:
    """For each budget in bytes the mix with the least estimate that fits: points of the frontier.

    Raises BudgetError for a budget that nothing fits.
    """
    return [choose_mix(candidates, tolerance=0.0, budget=budget) for budget in budgets]


@dataclass(frozen=True)
class _Step:
    """One downgrade of one matrix."""

    name: str
    number: int
    candidate: Candidate
    added: float
    """Squared change."""
    saved: int
    """Bytes."""


def _steps(ladders: Mapping[str, Sequence[Candidate]]) -> list[_Step]:
    """All downgrades, the cheapest in squared change per byte first, each matrix's own in order."""
    steps = [
        _Step(name, number, low, low.change**2 - high.change**2, high.bytes - low.bytes)
        for name, ladder in ladders.items()
        for number, (high, low) in enumerate(itertools.pairwise(ladder))
    ]
    return sorted(steps, key=lambda step: (step.added / step.saved, step.name, step.number))


def _ladder(name: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates worth considering, from the most exact to the smallest.

    Left out are those that another one beats in both, and those above the line between two others:
    so each rung costs more squared change per byte than the one before it.
    """
    if not candidates:
        raise ValueError(f"expected at least one format for the matrix {name}, found none")
    ladder: list[Candidate] = []
    for low in sorted(candidates, key=lambda c: (c.change, c.bytes, c.format)):
        if ladder and low.bytes >= ladder[-1].bytes:
            continue
        while len(ladder) > 1 and _slope(ladder[-2], ladder[-1]) >= _slope(ladder[-1], low):
            ladder.pop()
        ladder.append(low)
    return ladder


def _slope(high: Candidate, low: Candidate) -> float:
    return (low.change**2 - high.change**2) / (high.bytes - low.bytes)
