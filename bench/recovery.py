"""Whether kills lose anything: a real daemon and its worker, killed at random instants.

    python -m bench.recovery --kills 20 --json

Apps post examples over HTTP to three adapters, which are trained again and again (torch_cpu, the
tiny random model). SIGKILL hits the worker, the daemon or both, mostly amid training, also just
after a resume, while loading, measuring and exporting; the daemon is started again each time and
the runs must go on by themselves. Then every example that was answered with 201 and every version
that was ever listed must be there, no kill may have cost more steps than lie between two
checkpoints, and every run is done once more in a fresh home without kills: losses, learning rates,
gradient norms and adapter bytes must be equal. Exit code 1: a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlmodel import col, select

from bench import recovery_undisturbed as undisturbed
from bench.recovery_apps import (
    Owner,
    Poster,
    Told,
    create_adapters,
    download_sha256,
    post_first,
)
from bench.recovery_notes import of_run
from bench.recovery_strikes import Kill, Killer, plan
from bench.recovery_worker import NOTES
from bench.service_daemon import MODEL, ROOT, Daemon, prepare_home
from bench.service_load import BenchError, Connection
from service.home import Home
from service.runs.run_spec import read_spec
from storage.database import Database
from storage.tables import Run

ADAPTERS = ("phone", "mail", "notes")
STEPS = 80
WORKER = "bench.recovery_worker"
_POSTERS = 2
_FINISH_SECONDS = 300.0

Example = tuple[str, str, str]
"""Adapter, input, label."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.recovery",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of when which process is killed")
    parser.add_argument("--folder", type=Path, help="where the homes are made; default: TMPDIR")
    parser.add_argument("--worker", default=WORKER, help="a module that notes as this one does")
    parser.add_argument("--adapters", type=int, choices=(1, 2, 3), default=len(ADAPTERS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lorad-bench-", dir=options.folder) as scratch:
        try:
            found = measure(
                Path(scratch),
                options.kills,
                options.seed,
                options.worker,
                ADAPTERS[: options.adapters],
            )
        except BenchError as error:
            print(f"bench.recovery: {error}", file=sys.stderr)
            return 1
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    return 0 if not found["broken"] else 1


def measure(
    scratch: Path, kills: int, seed: int, worker: str, adapters: tuple[str, ...]
) -> dict[str, Any]:
    """Every figure by its name; ``broken`` names the promises that don't hold."""
    began = time.monotonic()
    home, fresh = Home(scratch / "home"), Home(scratch / "fresh")
    notes = scratch / "notes"
    prepare_home(home.path, None)
    with Daemon(home.path) as daemon:
        create_adapters(daemon.connect(), MODEL, adapters)
    shutil.copytree(home.path, fresh.path)
    settings = {
        "LORAD_WORKER_MODULE": worker,
        "LORAD_RETRY_SECONDS": "0.2",
        "LORAD_NICE": "0",
        "LORAD_THREADS": "1",
        NOTES: str(notes),
    }
    told = Told()
    killer = Killer(lambda: Daemon(home.path, settings), notes)
    try:
        done = disturb(killer, told, adapters, kills, seed)
        assert killer.daemon is not None
        connection = killer.daemon.connect()
        kept = all_examples(connection, adapters)
        versions_lost = lost_versions(connection, told)
    finally:
        if killer.daemon is not None:
            killer.daemon.stop()
    found = compare(home, fresh, notes, told, kept, worker)
    found |= account(home, notes, told, done)
    found["examples_lost"] = len(lost_examples(told, kept))
    found["versions_lost"] = versions_lost
    found["examples"], found["versions"] = len(told.examples), len(told.versions)
    found["seed"], found["seconds"] = seed, round(time.monotonic() - began, 1)
    order = ("kills", "steps_lost", "steps_lost_bound", "examples_lost", "versions_lost")
    found = {name: found[name] for name in (*order, "adapter_equal")} | found
    found["broken"] = broken(found, kills)
    return found


def disturb(
    killer: Killer, told: Told, adapters: tuple[str, ...], kills: int, seed: int
) -> list[Kill]:
    """Post, train and kill; then let every run that was begun come to its end."""

    def connect() -> Connection:
        daemon = killer.daemon
        if daemon is None:
            raise ConnectionRefusedError
        return daemon.connect()

    post_first(connect(), told, adapters)
    owner = Owner(connect, told, adapters, STEPS)
    posters = [
        Poster(connect, told, adapters, f"app {number}", seed + number)
        for number in range(_POSTERS)
    ]
    everybody = (owner, *posters)

    def check() -> None:
        for one in everybody:
            one.check()

    for one in everybody:
        one.start()
    done = [killer.strike(strike, check) for strike in plan(kills, seed)]
    owner.asking = False
    deadline = time.monotonic() + _FINISH_SECONDS
    while owner.unfinished:
        check()
        if time.monotonic() > deadline:
            raise BenchError(f"the runs don't end within {_FINISH_SECONDS:.0f} seconds")
        time.sleep(0.1)
    for one in everybody:
        one.end()
    return done


def all_examples(connection: Connection, adapters: tuple[str, ...]) -> dict[int, Example]:
    """Every example that the daemon has, by its id."""
    found: dict[int, Example] = {}
    for name in adapters:
        cursor = ""
        while True:
            path = f"/v1/adapters/{name}/examples?limit=200{cursor}"
            page = connection.expect(200, "GET", path)
            found |= {one["id"]: (name, one["input"], one["label"]) for one in page["examples"]}
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
    return found


def lost_examples(told: Told, kept: Mapping[int, Example]) -> list[int]:
    """The ids that were acknowledged for texts that aren't there under them any more."""
    return [one for one, given in told.examples.items() if kept.get(one) != given]


def lost_versions(connection: Connection, told: Told) -> int:
    """How many of the versions that were listed can't be downloaded as they were."""
    lost = 0
    for (name, number), (_, digest) in told.versions.items():
        try:
            lost += download_sha256(connection, name, number) != digest
        except Exception:
            lost += 1
    return lost


def compare(
    home: Home, fresh: Home, notes: Path, told: Told, kept: Mapping[int, Example], worker: str
) -> dict[str, Any]:
    """Do every run once more in the fresh home, and look what is equal."""
    undisturbed.insert_examples(fresh, kept)
    own_notes = notes.with_name("fresh-notes")
    os.environ[NOTES] = str(own_notes)
    os.environ["PYTHONPATH"] = str(ROOT)  # where the workers that no daemon starts find the bench
    adapters, losses = [], []
    for run_id in sorted(told.runs):
        undisturbed.train(fresh, home, run_id, worker)
        adapter_id = read_spec(home, run_id)["adapter_id"]
        adapters.append(undisturbed.same_adapter(home, fresh, adapter_id, run_id))
        losses.append(undisturbed.same_losses(notes, own_notes, run_id))
    return {
        "adapter_equal": bool(adapters) and all(adapters),
        "losses_equal": bool(losses) and all(losses),
        "invented_examples": len(set(kept.values()) - told.sent),
        "halved_runs": len(halved := halved_runs(home)),
        "inexact_versions": len(told.inexact - halved),
        "runs": len(told.runs),
        "runs_with_equal_adapters": sum(adapters),
    }


def halved_runs(home: Home) -> set[int]:
    """Runs that were killed so often that they went on with less memory."""
    with closing(Database.open_readonly(home.database)) as database, database.read() as session:
        return set(session.exec(select(col(Run.id)).where(Run.halvings > 0)))


def account(home: Home, notes: Path, told: Told, done: Sequence[Kill]) -> dict[str, Any]:
    """What the kills cost, in steps that were done again."""
    lost: dict[int, int] = {}
    for run_id in told.runs:
        lost |= of_run(notes, run_id).lost
    interval = max(
        read_spec(home, run_id)["training"]["checkpoint_every_steps"] for run_id in told.runs
    )
    return {
        "kills": len(done),
        "steps_lost": sum(lost.values()),
        "steps_lost_bound": len(done) * interval,
        "steps_lost_most": max(lost.values(), default=0),
        "checkpoint_every_steps": interval,
        "kills_amid_training": sum(kill.phase == "training" for kill in done),
        "steps": sum(len(of_run(notes, run_id).steps) for run_id in told.runs),
        "killed": [asdict(kill) | {"steps_lost": lost.get(kill.worker or 0, 0)} for kill in done],
    }


def broken(found: Mapping[str, Any], kills: int) -> list[str]:
    """The promises that don't hold, and what makes the measurement worthless, in words."""
    promises = {
        "fewer kills than asked for": found["kills"] == kills,
        "fewer than half of the kills hit a run amid training": (
            found["kills_amid_training"] * 2 >= kills > 0
        ),
        "no run": found["runs"] > 0,
        "a run without a version": found["versions"] == found["runs"],
        "more steps lost than kills x checkpoint interval": (
            found["steps_lost"] <= found["steps_lost_bound"]
        ),
        "more steps lost by one kill than lie between two checkpoints": (
            found["steps_lost_most"] <= found["checkpoint_every_steps"]
        ),
        "acknowledged examples lost": found["examples_lost"] == 0,
        "examples that nobody sent": found["invented_examples"] == 0,
        "versions lost": found["versions_lost"] == 0,
        "another adapter than without kills": found["adapter_equal"],
        "a version that says it isn't exact, of a run with all its memory": found[
            "inexact_versions"
        ]
        == 0,
        "other losses than without kills": found["losses_equal"],
    }
    return [words for words, holds in promises.items() if not holds]


if __name__ == "__main__":
    sys.exit(main())
