"""What goes on around a daemon that is killed again and again: apps post, their owner trains.

Both remember what the daemon told them, outside of it.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import random
import threading
import time
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.service_load import BenchError, Connection
from bench.service_rows import LABELS, take, texts

HOLDOUT = 12
"""Held-out examples of an adapter; all that is posted later is trained on."""
FIRST = 30
"""Examples of an adapter before its first run."""

_PAUSE_SECONDS = 0.2
_RETRY_SECONDS = 0.1
_LOOK_SECONDS = 0.1

Connect = Callable[[], Connection]
"""A connection to the daemon that there is now.

Raises:
    OSError: there is none at the moment.
"""


@dataclass
class Told:
    """What the daemon has told over HTTP."""

    examples: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """``{id: (adapter, input, label)}`` of every example that was answered with 201."""
    sent: set[tuple[str, str, str]] = field(default_factory=set)
    """Every example that was ever sent, answered or not."""
    versions: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    """``{(adapter, number): (run, SHA-256 of its zip)}`` as downloaded."""
    inexact: set[int] = field(default_factory=set)
    """Runs whose version says that it isn't what one without kills would have been."""
    runs: dict[int, str] = field(default_factory=dict)
    """``{id: adapter}`` of every run that was seen."""


class Background(threading.Thread, ABC):
    """A thread that goes on until `end`, through any number of daemons."""

    def __init__(self, connect: Connect, told: Told, adapters: tuple[str, ...]) -> None:
        """Bind; `start` begins."""
        super().__init__(daemon=True)
        self.connect, self.told, self.adapters = connect, told, adapters
        self.failure: Exception | None = None
        self._ending = threading.Event()

    def end(self) -> None:
        """Wait until it has ended.

        Raises:
            BenchError: it had failed.
        """
        self._ending.set()
        self.join()
        self.check()

    def check(self) -> None:
        """Whether all is well.

        Raises:
            BenchError: it has failed.
        """
        if self.failure is not None:
            raise BenchError(f"{type(self).__name__}: {self.failure}") from self.failure

    def run(self) -> None:
        """The thread."""
        while not self._ending.is_set():
            try:
                self.work(self.connect())
            except OSError:  # killed; the next one comes soon
                time.sleep(_RETRY_SECONDS)
            except Exception as error:
                self.failure = error
                return

    @abstractmethod
    def work(self, connection: Connection) -> None:
        """Until the end, or until the connection breaks."""


class Poster(Background):
    """An app that posts examples, alone or a few at once, to one adapter after the other."""

    def __init__(
        self, connect: Connect, told: Told, adapters: tuple[str, ...], prefix: str, seed: int
    ) -> None:
        """Bind; ``prefix`` makes its texts different from all others'."""
        super().__init__(connect, told, adapters)
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._turns = itertools.cycle(adapters)
        self._texts = _prefixed(prefix)

    def work(self, connection: Connection) -> None:
        """Post and remember what was acknowledged."""
        while not self._ending.is_set():
            count = self._random.choice((1, 1, 1, 5, 20))
            post(connection, self.told, next(self._turns), take(self._texts, count), "train")
            time.sleep(_PAUSE_SECONDS * count)


class Owner(Background):
    """Asks for a run of each adapter that has none, and takes every version that there is."""

    def __init__(self, connect: Connect, told: Told, adapters: tuple[str, ...], steps: int) -> None:
        """Bind; runs have this many steps."""
        super().__init__(connect, told, adapters)
        self._seeds = itertools.count()
        self._steps = steps
        self.asking = True
        self.unfinished = True
        """Whether an adapter had an unfinished run when it last looked at all of them."""

    def work(self, connection: Connection) -> None:
        """Look at every adapter again and again."""
        while not self._ending.is_set():
            asking = self.asking
            unfinished = [self._look(connection, name, asking) for name in self.adapters]
            self.unfinished = asking or any(unfinished)
            time.sleep(_LOOK_SECONDS)

    def _look(self, connection: Connection, name: str, asking: bool) -> bool:
        path = f"/v1/adapters/{name}"
        newest = connection.expect(200, "GET", f"{path}/runs")["runs"][:1]
        for run in newest:
            self.told.runs[run["id"]] = name
            if run["status"] not in ("queued", "running", "interrupted", "completed"):
                raise BenchError(f"run {run['id']} is {run['status']}: {run['error']}")
        for version in connection.expect(200, "GET", f"{path}/versions")["versions"]:
            if (name, version["number"]) not in self.told.versions:
                digest = download_sha256(connection, name, version["number"])
                self.told.versions[name, version["number"]] = version["run"], digest
                if not version["exact_resume"]:
                    self.told.inexact.add(version["run"])
        unfinished = bool(newest) and newest[0]["status"] != "completed"
        if asking and not unfinished:
            training = {"steps": self._steps, "batch_size": 2, "seed": next(self._seeds)}
            connection.expect(202, "POST", f"{path}/runs", {"training": training})
        return unfinished


def post(
    connection: Connection, told: Told, adapter: str, rows: list[dict[str, str]], split: str
) -> None:
    """Post examples in one request; ``told`` gets them once they are acknowledged.

    Raises:
        OSError: the connection broke; they may have been kept or not.
    """
    given = [(adapter, row["input"], row["label"]) for row in rows]
    told.sent.update(given)
    body: dict[str, Any] = {"examples": [row | {"split": split} for row in rows]}
    answer = connection.expect(201, "POST", f"/v1/adapters/{adapter}/examples", body)
    told.examples.update(
        (accepted["id"], one) for accepted, one in zip(answer["examples"], given, strict=True)
    )


def post_first(connection: Connection, told: Told, adapters: tuple[str, ...]) -> None:
    """What each adapter has before its first run."""
    for name in adapters:
        source = _prefixed(f"first {name}")
        post(connection, told, name, take(source, FIRST), "train")
        post(connection, told, name, take(source, HOLDOUT), "holdout")


def create_adapters(connection: Connection, model: str, adapters: tuple[str, ...]) -> None:
    """The adapters, of the owner; they train only when it asks."""
    for name in adapters:
        body: dict[str, Any] = {"name": name, "base_model": model, "labels": list(LABELS)}
        body["night"] = {"train": False}
        connection.expect(201, "POST", "/v1/adapters", body)


def download_sha256(connection: Connection, name: str, number: int) -> str:
    """The hash of the zip that an app would download.

    Raises:
        BenchError: there is no such version.
        zipfile.BadZipFile: a file isn't whole.
    """
    path = f"/v1/adapters/{name}/versions/{number}/download"
    reply = connection.request("GET", path)
    if reply.status != 200:
        raise BenchError(f"GET {path}: {reply.status} {reply.body[:500]!r}")
    with zipfile.ZipFile(io.BytesIO(reply.body)) as archive:
        if (damaged := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{damaged} of {name} {number} is damaged")
    return hashlib.sha256(reply.body).hexdigest()


def _prefixed(prefix: str) -> Iterator[dict[str, str]]:
    for row in texts():
        yield row | {"input": f"{prefix}: {row['input']}"}
