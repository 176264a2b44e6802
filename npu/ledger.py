"""What was computed where: counts and seconds per engine, rows, fallbacks with their causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

Direction = Literal["forward", "input_gradient"]
"""The two ways a weight is used: y = x W^T, and dx = dy W."""

Product = Literal["forward", "recompute", "input_gradient"]
"""What a product is for; `recompute` is a forward repeated in the backward pass."""

PRODUCTS: tuple[Product, ...] = ("forward", "recompute", "input_gradient")


class Ledger:
    """The books of one open engine."""

    def __init__(self, engine: str) -> None:
        """Empty books, in which `engine` already has its rows of zeros."""
        self._products: dict[str, dict[str, int]] = {}
        self._seconds: dict[str, dict[str, float]] = {}
        self._rows_given = 0
        self._rows_padded = 0
        self._fallbacks: Counter[tuple[str, str, str | None, Direction | None]] = Counter()
        self._repeats: Counter[tuple[str, str, Direction]] = Counter()
        self._rails: Counter[tuple[str, str, Direction]] = Counter()
        self.given_up: dict[str, Any] | None = None
        """After how many products the engine was given up, and why; None: it wasn't."""
        self._add_engine(engine)

    def product(self, engine: str, product: Product, seconds: float) -> None:
        """Count a product under the engine that delivered it."""
        self._add_engine(engine)
        self._products[engine][product] += 1
        self._seconds[engine][product] += seconds

    def rows(self, *, given: int = 0, padded: int = 0) -> None:
        """Count rows the caller gave, and rows of zeros added to fill a bucket."""
        self._rows_given += given
        self._rows_padded += padded

    def fallback(
        self, engine: str, cause: str, matrix: str | None, direction: Direction | None
    ) -> None:
        """Count a failure of `engine` that another engine made good; None: it never opened."""
        self._fallbacks[engine, cause, matrix, direction] += 1

    def repeat(self, engine: str, matrix: str, direction: Direction) -> None:
        """Count a result beyond its number format, computed again on the same engine, smaller."""
        self._repeats[engine, matrix, direction] += 1

    def rails(self, engine: str, matrix: str, direction: Direction, values: int) -> None:
        """Count integer results at the ends of their range, which were computed again."""
        self._rails[engine, matrix, direction] += values

    def give_up(self, cause: str) -> None:
        """Note that the engine gets no more products, and after how many asked of it, this one too.

        Call it before this product is counted.
        """
        asked = sum(sum(counts.values()) for counts in self._products.values())
        self.given_up = {"after_products": asked + 1, "cause": cause}

    @property
    def fallbacks(self) -> int:
        """How many failures another engine made good."""
        return self._fallbacks.total()

    def report(self) -> dict[str, Any]:
        """The books as JSON-able values."""
        return {
            "products": {engine: dict(counts) for engine, counts in self._products.items()},
            "seconds": {engine: dict(seconds) for engine, seconds in self._seconds.items()},
            "rows": {"given": self._rows_given, "padded": self._rows_padded},
            "fallbacks": [
                {
                    "engine": engine,
                    "cause": cause,
                    "matrix": matrix,
                    "direction": direction,
                    "count": count,
                }
                for (engine, cause, matrix, direction), count in self._fallbacks.items()
            ],
            "repeats": _by_matrix(self._repeats),
            "rails": _by_matrix(self._rails),
            "given_up": self.given_up,
        }

    def _add_engine(self, engine: str) -> None:
        self._products.setdefault(engine, dict.fromkeys(PRODUCTS, 0))
        self._seconds.setdefault(engine, dict.fromkeys(PRODUCTS, 0.0))


def padded_share(rows: Mapping[str, int]) -> float:
    """Of all rows that were computed, those of zeros; `rows` as in a report."""
    computed = rows["given"] + rows["padded"]
    return round(rows["padded"] / computed, 4) if computed else 0.0


def _by_matrix(counts: Counter[tuple[str, str, Direction]]) -> list[dict[str, Any]]:
    return [
        {"engine": engine, "matrix": matrix, "direction": direction, "count": count}
        for (engine, matrix, direction), count in counts.items()
    ]
