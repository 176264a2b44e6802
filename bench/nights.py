"""Who is trained when: three clients with 5, 50 and 500 new examples over three simulated nights.

    python -m bench.nights --json

The real conductor, chooser, gates and database in simulated time; only the training itself is
played, at a fixed time an example. `reader` has 5 examples, too few to be due before one of them
has waited two days; `mail` has 50; `chat` has 500, more than one night's budget.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.simulated_phone import SimulatedPhone, Stretch

CLIENTS = {"reader": 5, "mail": 50, "chat": 500}
NIGHTS = 3
SECONDS_PER_EXAMPLE = 40.0
_NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    """One stretch of training, in the night with this number."""

    night: int
    stretch: Stretch

    def told(self) -> dict[str, Any]:
        one = self.stretch
        return {
            "night": self.night,
            "client": one.adapter,
            "from": one.begin.strftime("%a %H:%M"),
            "to": one.end.strftime("%a %H:%M"),
            "minutes": round(one.minutes, 1),
            "rule": one.rule,
            "outcome": one.outcome,
        }


def simulate(folder: Path, nights: int = NIGHTS) -> list[Row]:
    """All stretches of training in so many nights."""
    phone = SimulatedPhone(folder, _NOON)
    phone.trainer.seconds_per_example = SECONDS_PER_EXAMPLE
    try:
        for name, count in CLIENTS.items():
            phone.add_examples(phone.add_adapter(name, client=name), count)
        phone.run_until(_NOON + timedelta(days=nights), tick=30.0)
    finally:
        phone.close()
    return [Row((stretch.begin - _NOON).days + 1, stretch) for stretch in phone.trainer.stretches]


def report(rows: list[Row]) -> dict[str, Any]:
    """What the nights came to; ``starved`` lists who was never trained."""
    minutes: dict[str, list[float]] = {name: [0.0] * NIGHTS for name in CLIENTS}
    for row in rows:
        minutes[row.stretch.adapter][row.night - 1] += row.stretch.minutes
    return {
        "nights": NIGHTS,
        "new_examples": CLIENTS,
        "seconds_per_example": SECONDS_PER_EXAMPLE,
        "minutes": {name: [round(one, 1) for one in per] for name, per in minutes.items()},
        "completed": {
            name: sum(
                row.stretch.adapter == name and row.stretch.outcome == "completed" for row in rows
            )
            for name in CLIENTS
        },
        "starved": [name for name, per in minutes.items() if not any(per)],
        "stretches": [row.told() for row in rows],
    }


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("night", "client", "from", "to", "minutes", "rule", "outcome")
    for one in found["stretches"]:
        ended = {"outcome": str(one["outcome"]).partition(";")[0].replace("interrupted: ", "")}
        table.add_row(*(str(value) for value in (one | ended).values()))
    Console().print(table)
    print("starved:", ", ".join(found["starved"]) or "nobody")


def main() -> int:
    """Print the table or JSON; 1 if anybody starved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = report(simulate(Path(folder) / "home"))
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    return 1 if found["starved"] else 0


if __name__ == "__main__":
    sys.exit(main())
