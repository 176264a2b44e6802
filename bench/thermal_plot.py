"""Temperature and duty in the first hours of a night, as a PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from bench.thermal_night import Night
from bench.thermal_phone import Make

_HOURS = 3.0
"""The rest of the night is like the third hour."""
_COLOURS = {"ours": "C0", "on_off": "C1", "fixed": "C7"}


def plot(found: Sequence[tuple[Make, Mapping[str, Night]]], hard: float, path: Path) -> None:
    """A column of two panels for each phone: the battery's true temperature, and the duty."""
    figure = Figure(figsize=(5 * len(found), 7), layout="constrained")
    panels = figure.subplots(2, len(found), sharex=True, sharey="row", squeeze=False)
    for column, (make, of) in enumerate(found):
        warm, duty = panels[0][column], panels[1][column]
        for way, colour in _COLOURS.items():
            hours, battery, _, share = zip(*of[way].trace, strict=True)
            warm.plot(hours, battery, colour, lw=1, label=way)
            if way != "fixed":
                duty.plot(hours, share, colour, lw=1, drawstyle="steps-pre")
        warm.axhline(hard, color="red", lw=1, ls="--", label="hard limit")
        warm.set_title(
            f"{make.ambient:g} °C, {make.resistance:g} K/W, {make.capacity:g} J/K (simulated)"
        )
        duty.set_xlabel("hours")
        duty.set_xlim(0, _HOURS)
    panels[0][0].set_ylabel("battery, °C")
    panels[1][0].set_ylabel("duty")
    panels[0][0].legend(loc="lower right")
    figure.savefig(path, dpi=100, format="png")
