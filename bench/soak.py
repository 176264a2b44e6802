"""Whether anything grows on a phone that is never switched off: many nights, one after the other.

    python -m bench.soak --json

A real daemon with the real worker and predictor (torch_cpu, the tiny random model) on a clock that
is moved on over the hours in which nothing happens. By day apps post, correct, delete, ask, read,
download, import, hang up and are refused, and a backup is taken now and then; by night one or
two of three adapters train to the end, while a gate closes, somebody pauses, or the worker or the
daemon is killed. In the morning, at rest, the daemon's memory, descriptors, threads and children,
the disk, the rows of each table, temporary files and the log are counted. What is kept for months
is kept for days here, so that every bound is reached within the warm-up; then all must be flat
(`bench/soak_verdict.py` says how flat). ``--fault`` makes the daemon leak, which must be found.
Exit code 1: something grows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.service_load import BenchError
from bench.soak_daemon import BOUNDS, FAULTS
from bench.soak_days import spend_day
from bench.soak_nights import spend_night
from bench.soak_phone import SoakPhone
from bench.soak_verdict import TOLERANCES, Night, growths, trends
from bench.soak_watch import look_at_rest

NIGHTS = 130
WARM_UP = 20
LIFE_WARM_UP = 35
"""For so long a daemon's one heap still finds its size, by ever smaller steps."""
_MIB = 1024 * 1024


def main() -> int:
    """Print the figures as lines or JSON; 1 if something grows."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--nights", type=int, default=NIGHTS)
    parser.add_argument(
        "--warm-up", type=int, default=WARM_UP, help="nights that aren't judged, at the beginning"
    )
    parser.add_argument(
        "--life-warm-up", type=int, default=LIFE_WARM_UP, help="as many of a daemon's own first"
    )
    parser.add_argument("--fault", choices=FAULTS, default="", help="what the daemon shall leak")
    parser.add_argument("--minutes", type=float, default=600.0, help="no night begins after these")
    parser.add_argument("--folder", type=Path, help="where the home is made; default: TMPDIR")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lorad-soak-", dir=options.folder) as scratch:
        try:
            nights = soak(Path(scratch), options.nights, options.fault, options.minutes)
        except BenchError as error:
            print(f"bench.soak: {error}", file=sys.stderr)
            return 1
    found = report(nights, options.warm_up, options.life_warm_up)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    return 1 if found["growing"] else 0


def soak(scratch: Path, count: int, fault: str, minutes: float) -> list[Night]:
    """So many nights with the days before them, each said on standard error as it ends."""
    nights: list[Night] = []
    deadline = time.monotonic() + 60 * minutes
    with SoakPhone(scratch, fault) as phone:
        today = phone.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
        for number in range(1, count + 1):
            if time.monotonic() > deadline:
                break
            began = time.monotonic()
            today += timedelta(days=1)
            phone.clock.move_to(today.replace(hour=9))
            due = spend_day(phone, number)
            phone.clock.move_to(today.replace(hour=23, minute=5))
            disturbance = spend_night(phone, number, due)
            phone.clock.move_to(today + timedelta(days=1, hours=7, minutes=30))
            phone.look()
            figures = look_at_rest(phone)
            seconds = round(time.monotonic() - began, 1)
            nights.append(Night(number, phone.lives, disturbance, figures, seconds))
            print(_line(nights[-1]), file=sys.stderr, flush=True)
    return nights


def report(nights: list[Night], warm_up: int, life_warm_up: int) -> dict[str, Any]:
    """The figures of the first night after the warm-up and of the last, trends, and the verdict."""
    first, last = nights[min(warm_up, len(nights) - 1)], nights[-1]
    trend = trends(nights, warm_up, life_warm_up)
    return {
        "nights": len(nights),
        "lives": last.life,
        "warm_up": warm_up,
        "seconds": round(sum(night.seconds for night in nights), 1),
        "bounds": BOUNDS,
        "tolerances_a_night": {kind: most for kind, (most, _) in TOLERANCES.items()},
        "growing": [one.told() for one in growths(nights, warm_up, life_warm_up)],
        "figures": {
            name: {
                "first": first.figures.get(name, 0),
                "last": last.figures.get(name, 0),
                "most": max(night.figures.get(name, 0) for night in nights),
                "trend": round(value, 4),
            }
            for name, value in trend.items()
        },
        "every_night": [vars(night) for night in nights],
    }


def _line(night: Night) -> str:
    held = night.figures
    disk = sum(size for name, size in held.items() if name.startswith("disk."))
    return (
        f"night {night.number} ({night.disturbance}, {night.seconds} s): "
        f"{held['memory.own'] / _MIB:.1f} MiB, {held['descriptors']:g} descriptors, "
        f"{held['threads']:g} threads, {disk / _MIB:.2f} MiB on the disk"
    )


if __name__ == "__main__":
    sys.exit(main())
