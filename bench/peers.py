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
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bench.peers_base import ALPHA, RANK, Base
from bench.peers_bases import prepare_named_base
from bench.peers_contestants import CONTESTANTS
from bench.peers_environments import (
    DEFAULT_FOLDER,
    REQUIREMENTS,
    NotInstalledError,
    interpreter_of,
)
from bench.peers_flop import step_flop
from bench.peers_race import ROOT, ContestantError, interpreters, race, surroundings
from bench.peers_report import COUNTED, EFFICIENCY, broken, goals, peaks, ratios
from bench.peers_result import Race
from bench.peers_settings import TOP, Setting, settings
from bench.peers_task import Task

LEARNING_RATE, MAX_GRAD_NORM = 1e-3, 1.0
STEPS, FULL_STEPS, QUICK_STEPS = 8, 4, 3
QUICK_SETTINGS = ("realistic", "realistic_sorted_top")
QUICK_CONTESTANTS = ("ours", "ours_cached", "peft_as_used", "peft_best")
OTHERS = sorted(CONTESTANTS.keys() - {"ours", "ours_cached"})
"""Who may be left out."""

PROFILED = ("realistic", "short_4x64", "full_4x256", "realistic_top", "qwen_1x256")
EFFICIENCY_OF = ("short_4x64", "full_4x256")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminate)
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
    for line in found["broken"]:
        print(f"bench.peers: BROKEN: {line}", file=sys.stderr)
    return 0 if found["losses_agree"] else 1


def _terminate(*_: object) -> NoReturn:
    """SIGTERM ends the run as an exception does: no contestant and no file of it stays."""
    raise SystemExit(143)


def measure(scratch: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every figure by its name.

    Raises:
        ContestantError: if one of ours or PEFT fails; another peer's failure is a figure.
    """
    skipped: dict[str, str] = {}
    environments = {} if options.quick else _environments(options, skipped)
    base = prepare_named_base("tiny" if options.quick else "smollm2", scratch)
    chosen = _settings(base, options)
    rates = [] if options.quick else [_gemm(scratch, base)]
    races: dict[str, Race] = {}
    profiles: dict[str, Any] = {}
    for setting in chosen:
        pythons = interpreters(_present(setting, options), environments)
        if pythons.keys() <= {setting.ours}:
            _say(f"{setting.name} is left out: nobody is there to race with")
            continue
        _say(f"{setting.name}: {', '.join(pythons)}")
        with _base_of(setting, base, scratch) as own:
            task = _write_task(setting, own, scratch, options)
            found, failures = race(setting, task, pythons, scratch)
            races[setting.name] = found
            for name, failure in failures.items():
                skipped[f"{name} in {setting.name}"] = failure
                _say(f"SKIPPED: {failure}")
            if options.profile and setting.name in PROFILED:
                profiles[setting.name] = _json_of("bench.peers_profile", task)
    if rates:
        rates.append(_gemm(scratch, base))
    figures: dict[str, Mapping[str, float | None]] = {
        "ratios": ratios(races),
        "peak_mb": peaks(races, "from_start"),
        "gemm_efficiency": _efficiencies(base, races, rates),
    }
    faults = broken(races)
    return {
        **figures,
        "peak_mb_training": peaks(races, "training"),
        "memory_counted": COUNTED,
        "gemm_efficiency_is": EFFICIENCY,
        "gemm": rates,
        "goals": goals(figures),
        "losses_agree": not faults,
        "broken": faults,
        "settings": {name: race.summary() for name, race in races.items()},
        "profiles": profiles,
        "skipped": skipped,
        "circumstances": _circumstances(options),
    }


@contextmanager
def _base_of(setting: Setting, base: Base, scratch: Path) -> Iterator[Base]:
    """The setting's base: the one that is there, or one that is made, and removed afterwards."""
    if setting.base == "smollm2":
        yield base
        return
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        yield prepare_named_base(setting.base, Path(folder))


def _settings(base: Base, options: argparse.Namespace) -> list[Setting]:
    """Those asked for. Raises SystemExit for a name that none has."""
    if options.quick:
        every = settings(base.config.vocab_size, QUICK_STEPS, QUICK_STEPS, top=1)
    else:
        full = min(options.steps, FULL_STEPS)
        every = settings(base.config.vocab_size, options.steps, full, TOP)
    names = options.only or (QUICK_SETTINGS if options.quick else [one.name for one in every])
    if unknown := set(names) - {one.name for one in every}:
        known = ", ".join(one.name for one in every)
        raise SystemExit(f"bench.peers: expected settings out of {known}; found {min(unknown)}")
    return [one for one in every if one.name in names]


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


def _write_task(setting: Setting, base: Base, scratch: Path, options: argparse.Namespace) -> Path:
    path = scratch / f"{setting.name}.json"
    task = Task(
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
    )
    task.write(path)
    return path


def _present(setting: Setting, options: argparse.Namespace) -> list[str]:
    """Who of the setting's contestants may take part."""
    return [
        name
        for name in setting.contestants
        if name not in options.without and (not options.quick or name in QUICK_CONTESTANTS)
    ]


def _gemm(scratch: Path, base: Base) -> dict[str, Any]:
    _say("the machine's matrix rate")
    path = scratch / "config.json"
    path.write_text(json.dumps(base.config.to_json()))
    return _json_of("bench.peers_gemm", path)


def _json_of(module: str, argument: Path) -> dict[str, Any]:
    """What a process of its own prints."""
    command = [sys.executable, "-m", module, str(argument)]
    done = subprocess.run(
        command, cwd=ROOT, env=surroundings(), stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _efficiencies(
    base: Base, races: Mapping[str, Race], rates: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Share of the bound that ours reaches."""
    found = {}
    for name in EFFICIENCY_OF:
        if name in races and rates:
            flop = step_flop(base.config, races[name].setting.batches[0]).total
            bound = flop / (1e9 * max(rate["gflops"] for rate in rates))
            found[name] = round(bound / races[name].seconds("ours"), 3)
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
    parser.add_argument("--without", nargs="+", choices=OTHERS, default=(), metavar="NAME")
    parser.add_argument("--steps", type=int, default=STEPS, help="a setting, at least 3")
    parser.add_argument("--threads", type=int, default=2, help="of each contestant")
    parser.add_argument("--venvs", type=Path, default=DEFAULT_FOLDER, help="for litgpt, torchtune")
    parser.add_argument("--profile", action="store_true", help="also where our time goes")
    parser.add_argument("--folder", type=Path, help="where the models are made; default: TMPDIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
