"""What the daemon costs and how fast it answers: a live one, over a real socket, on a fresh home.

    python -m bench.service --json

In this order: starts and idle memory; a bare SQLite loop on the same disk; single examples from one
and from eight clients, batches and NDJSON, until 100,000 are kept; paced requests while nothing
trains, and again during a real run (torch_cpu, the tiny random model unless --source names
another); the same home with 1,000,000 examples, all of them in a finished version. Every 201 is a
commit with fsync. Put --folder on the disk that counts: on a tmpfs an fsync is free.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.service_daemon import MODEL, Daemon, prepare_home
from bench.service_load import (
    JSON,
    NDJSON,
    BenchError,
    Connection,
    Send,
    closed,
    paced,
    percentile_ms,
)
from bench.service_rows import (
    LABELS,
    bare_commits_per_second,
    database_bytes,
    fill,
    finish_a_run,
    take,
    texts,
)

ADAPTER = "phone"
ADDRESS = f"/v1/adapters/{ADAPTER}"
TRAINED = "trained"
CLIENTS = 8
EVERY_SECONDS = 0.05
STEPS = 100_000
"""The most a run may have: it outlasts every measurement."""
TRAINING_STARTS_SECONDS = 300.0

Texts = Iterator[dict[str, str]]


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    starts: int = 5
    settle_seconds: float = 5.0
    singles: int = 1000
    batches: int = 40
    ticks: int = 600
    kept: int = 100_000
    stored: int = 1_000_000
    asked: int = 200


QUICK = Plan(
    starts=1, settle_seconds=0.5, singles=16, batches=2, ticks=8, kept=3000, stored=5000, asked=5
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.service",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--quick", action="store_true", help="a few of everything: plumbing only")
    parser.add_argument("--folder", type=Path, help="where the home is made; default: TMPDIR")
    parser.add_argument("--source", help="a base model for `lorad model add`; default: tiny")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lorad-bench-", dir=options.folder) as scratch:
        found = measure(Path(scratch), QUICK if options.quick else Plan(), options.source)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    return 0


def measure(scratch: Path, plan: Plan, source: str | None = None) -> dict[str, Any]:
    """Every figure by its name."""
    home = scratch / "home"
    prepare_home(home, source)
    Daemon(home).stop()  # writes the bytecode of a fresh checkout; that is no start to measure
    (home / "lorad.db").unlink()
    found: dict[str, Any] = {"circumstances": circumstances(scratch, plan, source)}
    found |= starts(home, plan)
    posted = texts()
    with Daemon(home) as daemon:
        adapter = create_adapter(daemon.connect(), ADAPTER)
        found |= bare(home, posted, plan)
        found |= throughput(daemon, posted, plan)
        time.sleep(plan.settle_seconds)
        found["rss_mb_after_100k"] = daemon.memory_mb()
        found["rss_peak_mb"] = daemon.memory_mb("VmHWM")
        found |= latencies(daemon.connect(), posted, plan, "")
        found |= while_training(daemon, posted, plan)
        kept = daemon.connect().expect(200, "GET", ADDRESS)["examples"]
    rows = kept["train"] + kept["holdout"]
    found["bytes_per_example"] = round(database_bytes(home) / rows, 1)
    found["text_bytes_per_example"] = round(kept["bytes"] / rows, 1)
    fill(home, adapter, posted, plan.stored - rows)
    finish_a_run(home, adapter)
    with Daemon(home) as daemon:
        found["adoption_seconds_at_1m"] = round(daemon.start_seconds, 3)
        found["adoption_rss_peak_mb_at_1m"] = daemon.memory_mb("VmHWM")
    found |= at_a_million(home, posted, plan)
    return found


def circumstances(scratch: Path, plan: Plan, source: str | None) -> dict[str, Any]:
    """What the figures depend on."""
    disk = subprocess.run(
        ["stat", "-f", "-c", "%T", scratch], capture_output=True, text=True, check=True
    )
    return {
        "plan": vars(plan),
        "base_model": source or "the tiny random model",
        "training": "a real run on torch_cpu",
        "file_system": disk.stdout.strip(),
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def starts(home: Path, plan: Plan) -> dict[str, Any]:
    """Seconds to the first answer, the first time on a new home; memory once it is quiet."""
    seconds, memory = [], []
    for _ in range(plan.starts):
        with Daemon(home) as daemon:
            seconds.append(daemon.start_seconds)
            time.sleep(plan.settle_seconds)
            memory.append(daemon.memory_mb())
    return {
        "idle_rss_mb": statistics.median(memory),
        "start_seconds": round(statistics.median(seconds), 3),
        "start_seconds_worst": round(max(seconds), 3),
    }


def create_adapter(connection: Connection, name: str, **fields: Any) -> int:
    """A new adapter; it is the home's only or second one, and so is its id."""
    # By night its examples would have it trained unasked, beside what is measured.
    night = {"train": False}
    body = {"name": name, "base_model": MODEL, "labels": list(LABELS), "night": night} | fields
    connection.expect(201, "POST", "/v1/adapters", body)
    return len(connection.expect(200, "GET", "/v1/adapters")["adapters"])


def bare(home: Path, posted: Texts, plan: Plan) -> dict[str, Any]:
    """The floor: commits a second without a daemon."""
    return {"bare_commits_per_second": bare_commits_per_second(home, 1, take(posted, plan.singles))}


def throughput(daemon: Daemon, posted: Texts, plan: Plan) -> dict[str, Any]:
    """Examples a second, until the adapter keeps ``plan.kept`` of them."""

    def rate(clients: int, requests: int, size: int, kind: str = JSON) -> float:
        sends = [
            [post(take(posted, size), kind) for _ in range(requests // clients)]
            for _ in range(clients)
        ]
        _, seconds = closed(daemon.connect, sends)
        return round(sum(map(len, sends)) * size / seconds, 1)

    found = {
        "post_per_second": rate(1, plan.singles, 1),
        "post_per_second_8_clients": rate(CLIENTS, plan.singles, 1),
        "batch_100_examples_per_second": rate(1, plan.batches, 100),
        "ndjson_1000_examples_per_second": rate(1, plan.batches // 2, 1000, NDJSON),
    }
    kept = daemon.connect().expect(200, "GET", ADDRESS)["examples"]
    missing = plan.kept - kept["train"] - kept["holdout"]
    found["batch_examples_per_second"] = rate(1, missing // 500, 500)
    return found


def post(rows: list[dict[str, str]], kind: str = JSON) -> Send:
    """One request with these examples."""
    if kind == NDJSON:
        body = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    else:
        body = json.dumps(rows[0] if len(rows) == 1 else {"examples": rows}, ensure_ascii=False)
    return Send("POST", f"{ADDRESS}/examples", body.encode(), kind, 201)


def latencies(connection: Connection, posted: Texts, plan: Plan, suffix: str) -> dict[str, Any]:
    """What an app waits for one example and for the status, at 20 of each a second."""
    posts = (post(take(posted, 1)) for _ in itertools.count())
    gets = itertools.repeat(Send("GET", ADDRESS))
    found: dict[str, Any] = {}
    measured = paced(connection, (posts, gets), plan.ticks, EVERY_SECONDS)
    for name, seconds in zip(("post", "get"), measured, strict=True):
        for percent in (50, 99):
            found[f"{name}_p{percent}_ms{suffix}"] = percentile_ms(seconds, percent)
    return found


def while_training(daemon: Daemon, posted: Texts, plan: Plan) -> dict[str, Any]:
    """The same latencies while a worker trains another adapter."""
    connection = daemon.connect()
    create_adapter(connection, TRAINED, training={"steps": STEPS})
    rows = [row | {"split": "train"} for row in take(posted, 64)]
    rows += [row | {"split": "holdout"} for row in take(posted, 32)]
    path = f"/v1/adapters/{TRAINED}"
    connection.expect(201, "POST", f"{path}/examples", {"examples": rows})
    run = f"/v1/runs/{connection.expect(202, 'POST', f'{path}/runs', {})['id']}"
    deadline = time.monotonic() + TRAINING_STARTS_SECONDS
    while (state := connection.expect(200, "GET", run))["step"] == 0:
        if state["status"] not in ("queued", "running") or time.monotonic() > deadline:
            raise BenchError(f"the run doesn't begin: {state}")
        time.sleep(0.1)
    found = latencies(connection, posted, plan, "_training")
    after = connection.expect(200, "GET", run)
    if (after["status"], after["phase"]) != ("running", "training"):
        raise BenchError(f"nothing trained any more when the measurement ended: {after}")
    return found | {"steps_while_measured": after["step"] - state["step"]}


def at_a_million(home: Path, posted: Texts, plan: Plan) -> dict[str, Any]:
    """The home with all its rows: start, memory, status, a page, one more example."""
    with Daemon(home) as daemon:
        time.sleep(plan.settle_seconds)
        found = {
            "start_seconds_at_1m": round(daemon.start_seconds, 3),
            "idle_rss_mb_at_1m": daemon.memory_mb(),
        }
        sends = {
            "status": [Send("GET", ADDRESS)] * plan.asked,
            "page_of_100": [Send("GET", f"{ADDRESS}/examples?limit=100")] * plan.asked,
            "post": [post(take(posted, 1)) for _ in range(plan.asked)],
        }
        for name, own in sends.items():
            seconds, _ = closed(daemon.connect, [own])
            found[f"{name}_ms_at_1m"] = percentile_ms(seconds, 50)
            found[f"{name}_p99_ms_at_1m"] = percentile_ms(seconds, 99)
        status = daemon.connect().expect(200, "GET", ADDRESS)
        found["examples_at_1m"] = status["examples"]["train"] + status["examples"]["holdout"]
        found["held_out_rows_at_1m"] = status["active_version"]["metrics"]["holdout"]
        return found


if __name__ == "__main__":
    sys.exit(main())
