"""Accuracy on real labels over seeds: `python -m bench.real_labels ROWS.jsonl [--seeds 0 1 2]`.

Runs `lorad demo --data ROWS --json` once a seed, exactly as a user would, and prints one JSON
object: each seed's figures and the means. The seeds change the order of the data and the start of
the adapter; the rows stay the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any


def run_seed(rows: Path, seed: int, options: Sequence[str]) -> dict[str, Any]:
    """One demo: the summary it printed last. Its progress goes to our stderr.

    Raises:
        subprocess.CalledProcessError: the demo failed.
    """
    command = [sys.executable, "-m", "service.cli.main", "demo", "--json"]
    command += ["--data", str(rows), "--seed", str(seed), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def gather(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures that matter, seed by seed, and their means."""
    after = [summary["accuracy_after"] for summary in summaries]
    return {
        "data": summaries[0]["data"],
        "train": summaries[0]["train"],
        "holdout": summaries[0]["holdout"],
        "steps": summaries[0]["steps"],
        "engine": summaries[0]["engine"],
        "baselines": summaries[0]["baselines"],
        "seeds": [
            {
                "seed": summary["seed"],
                "accuracy_before": summary["accuracy_before"],
                "accuracy_after": summary["accuracy_after"],
                "loss_before": summary["loss_before"],
                "loss_after": summary["loss_after"],
                "paired": summary["paired"],
                "run_seconds": summary["run_seconds"],
                "seconds": summary["seconds"],
            }
            for summary in summaries
        ],
        "mean": {
            "accuracy_before": mean(summary["accuracy_before"] for summary in summaries),
            "accuracy_after": mean(after),
            "seconds": mean(summary["seconds"] for summary in summaries),
        },
        "standard_deviation_over_seeds": stdev(after) if len(after) > 1 else None,
    }


def main() -> None:
    """Read the arguments, run every seed, print the object."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        epilog="What follows -- goes to `lorad demo` as it is.",
    )
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("options", nargs="*", default=[])
    arguments = parser.parse_args()
    summaries = [run_seed(arguments.rows, seed, arguments.options) for seed in arguments.seeds]
    print(json.dumps(gather(summaries)))


if __name__ == "__main__":
    main()
