"""Whether figures of one night after another are flat: what may vary, what may grow, by how much.

Descriptors, threads, children and temporary files are *equal* on all nights of a life of the daemon
after its first ones: one that stays open a week is one too many. Everything else varies from
night to night, and is judged by its *trend*: the median of the slopes between all pairs of nights
(Theil and Sen), which a few odd nights don't move. What may be left of a trend is a tolerance, by
the part of the name before the first dot; what has none is told and not judged.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from typing import Any

from bench.soak_watch import Figures

EQUAL = ("descriptors", "threads", "children", "zombies", "temporary")

TOLERANCES: dict[str, tuple[float, str]] = {
    "memory": (32 * 1024, "12 MB in a year without a restart, of the 80 MB that are promised"),
    "disk": (4096, "a page a night: 1.5 MB in a year"),
    "files": (0.02, "a file in fifty nights: less than one is lost"),
    "rows": (0.05, "a row in twenty nights"),
    "log": (256, "by which a night's log may be longer than that of the night before"),
}
"""In bytes, files or rows a night, and why."""

_GROWING_BY_ITSELF = {"log"}
"""Of these the figure is a total, and what is judged is by how much it grows each night."""

ROUND = 6
"""A thread that has answered a request stays some seconds, in case of another: of so many nights,
in which everything happens once, the fewest threads count."""


@dataclass(frozen=True)
class Night:
    """One night: its number, the life of the daemon at its end, what came in between, figures."""

    number: int
    life: int
    disturbance: str
    figures: Figures
    seconds: float = 0.0


@dataclass(frozen=True)
class Growth:
    """A figure that isn't flat: in words why, and its trend a night."""

    name: str
    trend: float
    why: str

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def theil_sen(points: Sequence[tuple[float, float]], groups: Sequence[int] = ()) -> float:
    """The median slope of all pairs of points, of those in the same group; 0 of too few.

    Args:
        points: x and y of each.
        groups: the group of each; none: all are in the same one.
    """
    of = groups or [0] * len(points)
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0])
        for (a, one), (b, other) in combinations(zip(points, of, strict=True), 2)
        if one == other and a[0] != b[0]
    ]
    return statistics.median(slopes) if slopes else 0.0


def trends(nights: Sequence[Night], warm_up: int, life_warm_up: int) -> dict[str, float]:
    """The trend a night of every figure, by its name.

    Memory begins anew with each life of the daemon: only nights of the same life are compared, and
    none of its first ``life_warm_up``.
    """
    kept = nights[warm_up:]
    names = sorted({name for night in kept for name in night.figures})
    return {name: _trend(name, nights, kept, life_warm_up) for name in names}


def _trend(name: str, nights: Sequence[Night], kept: Sequence[Night], life_warm_up: int) -> float:
    kind = name.partition(".")[0]
    if kind == "memory":
        kept = _settled(nights, kept, life_warm_up)
        points = [(float(night.number), night.figures[name]) for night in kept]
        return theil_sen(points, [night.life for night in kept])
    points = [(float(night.number), night.figures.get(name, 0.0)) for night in kept]
    if kind in _GROWING_BY_ITSELF:
        points = [(b[0], b[1] - a[1]) for a, b in pairwise(points)]
    return theil_sen(points)


def _settled(nights: Sequence[Night], kept: Sequence[Night], life_warm_up: int) -> list[Night]:
    """Those of the kept nights that aren't among the first of a life of the daemon."""
    began: dict[int, int] = {}
    for night in nights:
        began.setdefault(night.life, night.number)
    return [night for night in kept if night.number >= began[night.life] + life_warm_up]


def growths(nights: Sequence[Night], warm_up: int, life_warm_up: int) -> list[Growth]:
    """What isn't flat after the first ``warm_up`` nights; nothing, if all is well."""
    settled = _settled(nights, nights[warm_up:], life_warm_up)
    found = []
    for name, trend in trends(nights, warm_up, life_warm_up).items():
        kind = name.partition(".")[0]
        if kind in EQUAL:
            if (why := _differing(name, settled)) is not None:
                found.append(Growth(name, trend, why))
            continue
        most, _ = TOLERANCES.get(kind, (math.inf, ""))
        if trend > most:
            why = f"expected a trend of at most {most:g} a night, found {trend:.6g}"
            found.append(Growth(name, trend, why))
    return found


def _differing(name: str, settled: Sequence[Night]) -> str | None:
    for life in sorted({night.life for night in settled}):
        held = [night.figures.get(name, 0.0) for night in settled if night.life == life]
        if name == "threads":
            rounds = [held[start : start + ROUND] for start in range(0, len(held), ROUND)]
            held = [min(one) for one in rounds if len(one) == ROUND or len(rounds) == 1]
        if len(set(held)) > 1:
            return f"expected the same on all nights, found {min(held):g} to {max(held):g}"
    return None
