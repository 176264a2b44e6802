"""The phone of a soak: a home, its clock and sensors, the daemon that lives on it, and two apps."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from bench.service_daemon import MODEL, Daemon, prepare_home
from bench.service_load import BenchError
from bench.service_rows import LABELS, take, texts
from bench.soak_clock import MovedClock
from bench.soak_daemon import CLOCK, FAULT

OWNER = "owner"
ADAPTERS = {"phone": OWNER, "mail": "mail", "notes": "notes"}
"""Each adapter's name, and whose it is."""
STEPS = 6
KEEP_DAYS = 4
KEEP_VERSIONS = 2
MOST_PENDING = 400

_AT_ONCE = 12
_PATIENCE_SECONDS = 240.0
_POLL_SECONDS = 0.15
_LOOK = timedelta(seconds=61)  # a reading older than a minute is taken anew


class SoakPhone:
    """A context manager: the daemon runs in it, and can be killed and started again."""

    def __init__(self, scratch: Path, fault: str = "") -> None:
        """Make the home and start the daemon, with its adapters and apps."""
        self.home, self.tmp = scratch / "home", scratch / "tmp"
        self.tmp.mkdir()
        self.clock = MovedClock(scratch / "clock")
        self.lives = 0
        """How often a daemon was started."""
        self.texts: Iterator[dict[str, str]] = texts()
        self.numbers = itertools.count(1)
        self._tokens: dict[str, str] = {}
        self._settings = {
            "LORAD_RETRY_SECONDS": "1",
            "LORAD_NICE": "0",
            "LORAD_THREADS": "1",
            "LORAD_PREDICT_IDLE_SECONDS": "1",
            "TZ": "UTC",
            "TMPDIR": str(self.tmp),
            CLOCK: str(scratch / "clock"),
            FAULT: fault,
        }
        prepare_home(self.home, None)
        self.start()
        try:
            self._pair_apps()
            for name in ADAPTERS:
                self.create_adapter(name)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> SoakPhone:
        """The phone."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End the daemon."""
        self.stop()

    def start(self) -> None:
        """Begin a life of the daemon, and open every database connection that it keeps."""
        self.daemon = Daemon(self.home, self._settings, module="bench.soak_daemon")
        self._tokens[OWNER] = (self.home / "token").read_text().strip()
        self.lives += 1
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda _: self.ask("GET", "/v1/history?limit=200"), range(4 * _AT_ONCE)))

    def stop(self) -> None:
        """End it in order."""
        self.daemon.stop()

    def kill_daemon(self) -> None:
        """SIGKILL, and a new life."""
        self.daemon.kill()
        self.start()

    def as_client(self, client: str) -> httpx.Client:
        """A new connection of this client; close it."""
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.daemon.port}",
            headers={"Authorization": f"Bearer {self._tokens[client]}"},
            timeout=60,
            trust_env=False,
        )

    def ask(self, method: str, path: str, *statuses: int, client: str = OWNER, **more: Any) -> Any:
        """One request on a connection of its own; its JSON, or its text.

        Raises:
            BenchError: it was answered with none of the statuses (200 if none is named).
        """
        with self.as_client(client) as http:
            reply = http.request(method, path, **more)
        if reply.status_code not in (statuses or (200,)):
            raise BenchError(f"{method} {path}: {reply.status_code} {reply.text[:500]}")
        kind = reply.headers.get("Content-Type", "")
        return reply.json() if kind.startswith("application/json") else reply.content

    def create_adapter(self, name: str, client: str | None = None) -> None:
        """An adapter that trains by night, a few steps on what came in the last days."""
        client = client or ADAPTERS[name]
        body: dict[str, Any] = {"name": name, "base_model": MODEL, "labels": list(LABELS)}
        body |= {
            "rank": 2,
            "training": {"steps": STEPS, "batch_size": 2},
            "night": {"min_new": 20, "wait_days": 30},
            "retention": {"keep_days": KEEP_DAYS, "keep_versions": KEEP_VERSIONS},
        }
        if name == "phone":
            body["top_layers"] = 1
        self.ask("POST", "/v1/adapters", 201, client=client, json=body)

    def rows(self, count: int, split: str) -> list[dict[str, str]]:
        """New examples, each with an id of the app's own."""
        given = take(self.texts, count)
        return [row | {"split": split, "external_id": f"row-{next(self.numbers)}"} for row in given]

    def sensors(self, **said: Any) -> None:
        """Let the sensors say this from now on."""
        written = self.home / "sensors.json"
        beside = written.with_suffix(".new")
        beside.write_text(json.dumps(said))
        beside.replace(written)

    def look(self) -> None:
        """Let a minute pass, and the daemon look at its gates."""
        self.clock.move_on(_LOOK)
        self.ask("GET", "/v1/device")

    def children(self) -> dict[int, str]:
        """The daemon's child processes: their command lines, '' for a zombie."""
        found: dict[int, str] = {}
        for listed in Path(f"/proc/{self.daemon.pid}/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                for pid in listed.read_text().split():
                    with suppress(FileNotFoundError, ProcessLookupError):  # so has the child
                        line = Path(f"/proc/{pid}/cmdline").read_bytes()
                        found[int(pid)] = line.replace(b"\0", b" ").decode()
        return found

    def kill_worker(self) -> bool:
        """SIGKILL to the worker, if there is one."""
        for pid, line in self.children().items():
            if "trainer.worker" in line:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        """Until the condition gives something true, which is returned.

        Raises:
            BenchError: it doesn't for minutes.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (found := condition()):
            if time.monotonic() > deadline:
                log = self.daemon.log.read_text()[-3000:]
                raise BenchError(f"waited in vain until {what}; children {self.children()}\n{log}")
            time.sleep(_POLL_SECONDS)
        return found

    def _pair_apps(self) -> None:
        for name in sorted({*ADAPTERS.values()} - {OWNER}):
            self.pair(name)

    def pair(self, name: str) -> None:
        """Give an app a token."""
        body = {
            "name": name,
            "scopes": [
                *("examples:write", "status:read", "adapters:manage"),
                *("train", "predict", "adapters:download"),
            ],
            "quotas": {"most_pending": MOST_PENDING},
        }
        code = self.ask("POST", "/v1/pairing-codes", 201, json=body)["code"]
        paired = self.ask("POST", "/v1/pair", 200, 201, json={"code": code})
        self._tokens[name] = paired["token"]
