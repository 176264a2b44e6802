"""The frontier as a PNG: what a byte per parameter buys in exactness, and in holdout loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_TICKS = (0.5, 0.6, 0.7, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0)


def plot(points: Sequence[Mapping[str, Any]], knee: str, path: Path) -> None:
    """Two panels over the stored bytes per parameter, the knee ringed.

    Left the change of the adapter gradients, on a logarithmic axis; right the holdout loss, a dot
    for every seed and a line through the means. Precisions with the very same weights are one dot.
    """
    figure = Figure(figsize=(13, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        groups.setdefault(point["weights"], []).append(point)
    line = []
    for number, same in enumerate(groups.values()):
        point, names = same[0], [point["name"] for point in same]
        x = point["bytes_per_parameter"]
        label, ring = " = ".join(names), "C3" if knee in names else "none"
        above = number % 2 == 0
        if point["gradient"] and point["gradient"]["change"] > 0:
            _dot(left, x, point["gradient"]["change"], label, ring, above=above)
        if point["losses"]:
            for loss in point["losses"]:
                right.plot(x, loss, "C0.", alpha=0.5)
            line.append((x, mean(point["losses"])))
            _dot(right, *line[-1], label, ring, above=above)
    left.set_yscale("log")
    left.set_ylabel("change of the adapter gradients from fp32")
    if line:
        right.plot(*zip(*sorted(line), strict=True), color="C0", lw=0.8, alpha=0.6)
    right.set_ylabel("holdout loss per label token, nats")
    for panel in (left, right):
        panel.set_xscale("log")
        panel.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        panel.set_xticks([], minor=True)
        panel.margins(x=0.15)
        panel.set_xlabel("bytes per parameter as stored")
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=100, format="png")


def _dot(panel: Axes, x: float, y: float, label: str, ring: str, *, above: bool) -> None:
    panel.plot(x, y, "o", color="C0", markeredgecolor=ring, markeredgewidth=2.5, ms=9)
    offset = (6, 7) if above else (6, -14)
    panel.annotate(label, (x, y), xytext=offset, textcoords="offset points", fontsize=8)
