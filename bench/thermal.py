"""Pacing against on and off: simulated phones through a night, under the daemon's own gates.

    python -m bench.thermal --json
    python -m bench.thermal --plot thermal.png

Twelve phones (20, 30 and 38 °C in the room, two thermal resistances, two heat capacities; see
`bench/thermal_phone.py` for what is chosen) spend eight hours under each way: ours (gates and
pacing), the gates alone with their own hysteresis, the gates alone at our limits, and ten minutes
on and two off with the hard limit only. Readings come once a minute, lag by 30 s and are floored to
whole degrees. A step takes a second of work; stopping and starting cost nothing, which favours the
ways that pause often. It is a simulation: nothing here was measured on a phone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.thermal_night import HARD, NIGHT_HOURS, Night, spend, ways
from bench.thermal_phone import Make

AMBIENT = (20.0, 30.0, 38.0)
RESISTANCE = (5.0, 8.0)
CAPACITY = (120.0, 220.0)

Nights = Mapping[str, Night]


def grid() -> Iterator[Make]:
    """The twelve phones."""
    for ambient, resistance, capacity in itertools.product(AMBIENT, RESISTANCE, CAPACITY):
        yield Make(ambient, resistance, capacity)


def nights(makes: Iterable[Make], hours: float = NIGHT_HOURS) -> list[tuple[Make, Nights]]:
    """Every phone under every way."""
    return [
        (make, {name: spend(make, way, hours) for name, way in ways().items()}) for make in makes
    ]


def summary(found: list[tuple[Make, Nights]]) -> dict[str, Any]:
    """All figures, JSON-able. Phones on which the gates alone train nothing are in no ratio."""

    def total(what: str, way: str) -> int:
        return sum(getattr(of[way], what) for _, of in found)

    figures: dict[str, Any] = {"seconds_above_hard": total("seconds_above_hard", "ours")}
    for way in ("on_off", "on_off_at_our_limits", "fixed"):
        ratios = [of["ours"].steps / of[way].steps for _, of in found if of["on_off"].steps > 0]
        figures[f"steps_ratio_vs_{way}_min"] = round(min(ratios), 3)
        figures[f"steps_ratio_vs_{way}"] = round(statistics.median(ratios), 3)
        figures[f"seconds_above_hard_{way}"] = total("seconds_above_hard", way)
    for way in found[0][1]:
        figures[f"pauses_{way}"] = total("pauses", way)
        figures[f"hottest_{way}"] = round(max(of[way].hottest for _, of in found), 2)
    figures["cells_without_a_step_on_off"] = sum(of["on_off"].steps == 0 for _, of in found)
    figures["cells"] = [_cell(make, of) for make, of in found]
    return figures


def _cell(make: Make, of: Nights) -> dict[str, Any]:
    return {
        "ambient": make.ambient,
        "resistance": make.resistance,
        "capacity": make.capacity,
        **{
            way: {
                "hottest": round(night.hottest, 2),
                "hottest_case": round(night.hottest_case, 2),
                "mean": round(night.mean, 2),
                "seconds_above_hard": night.seconds_above_hard,
                "duty": round(night.steps / (night.hours * 3600), 3),
                "steps_per_hour": round(night.steps_per_hour, 1),
                "pauses": night.pauses,
            }
            for way, night in of.items()
        },
    }


def _print(figures: Mapping[str, Any]) -> None:
    for cell in figures["cells"]:
        print(f"{cell['ambient']:g} °C, {cell['resistance']:g} K/W, {cell['capacity']:g} J/K")
        for way in ways():
            night = cell[way]
            print(
                f"  {way:21} hottest {night['hottest']:5.2f} mean {night['mean']:5.2f} °C"
                f"  above hard {night['seconds_above_hard']:5} s  duty {night['duty']:5.3f}"
                f"  {night['steps_per_hour']:6.0f} steps/h  {night['pauses']:3} pauses"
            )
    for name, value in figures.items():
        if name != "cells":
            print(f"{name}: {value}")


def main() -> None:
    """Command line of the bench."""
    parser = argparse.ArgumentParser(prog="python -m bench.thermal", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    parser.add_argument("--plot", type=Path, help="write a PNG (needs the extra `bench`)")
    arguments = parser.parse_args()
    found = nights(grid())
    figures = summary(found)
    if arguments.plot is not None:
        from bench.thermal_plot import plot

        few = [
            (make, of)
            for make, of in found
            if make.capacity == CAPACITY[0] and of["on_off"].steps > 0
        ]
        plot(few, HARD, arguments.plot)
    if arguments.json:
        print(json.dumps(figures))
    else:
        _print(figures)


if __name__ == "__main__":
    main()
