"""The load on a daemon: a client that costs next to nothing, and two ways of sending with it.

*Closed*: each client sends its next request when the last is answered: how much goes through.
*Paced*: requests are due at fixed times, whatever became of those before, and a latency counts from
when its request was due: what an app waits, without forgetting those who waited behind a slow one.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

TIMEOUT_SECONDS = 120.0
JSON = "application/json"
NDJSON = "application/x-ndjson"


class BenchError(RuntimeError):
    """The measurement can't go on; the message says what happened."""


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)


class Connection:
    """One kept-alive HTTP/1.1 connection to 127.0.0.1.

    Written out because a full client library would spend more of the two cores than the daemon.
    """

    def __init__(self, port: int, token: str) -> None:
        """Connect.

        Raises:
            OSError: nobody listens.
        """
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def request(self, method: str, path: str, body: bytes = b"", kind: str = JSON) -> Reply:
        """Send a request and read its answer, whatever the status.

        Raises:
            OSError: the connection broke.
        """
        head = f"{method} {path} HTTP/1.1\r\n{self._head}"
        if body:
            head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + body)
        status = int(self._line().split()[1])
        length = 0
        while line := self._line().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        answer = self._file.read(length)
        if len(answer) < length:
            raise ConnectionResetError("the daemon closed the connection amid its answer")
        return Reply(status, answer)

    def _line(self) -> bytes:
        line = self._file.readline()
        if not line:
            raise ConnectionResetError("the daemon closed the connection")
        return line

    def expect(self, status: int, method: str, path: str, value: Any = None) -> Any:
        """Send a JSON request that must be answered with this status; the answer's value.

        Raises:
            BenchError: it wasn't.
        """
        body = b"" if value is None else json.dumps(value, ensure_ascii=False).encode()
        reply = self.request(method, path, body)
        if reply.status != status:
            raise BenchError(f"{method} {path}: {reply.status} {reply.body[:500]!r}")
        return reply.json()


@dataclass(frozen=True)
class Send:
    """A request to be sent, and the status that it must have."""

    method: str
    path: str
    body: bytes = b""
    kind: str = JSON
    status: int = 200

    def by(self, connection: Connection) -> None:
        """Send it.

        Raises:
            BenchError: another status came back.
        """
        reply = connection.request(self.method, self.path, self.body, self.kind)
        if reply.status != self.status:
            raise BenchError(f"{self.method} {self.path}: {reply.status} {reply.body[:500]!r}")


def closed(
    connect: Callable[[], Connection], sends: Sequence[Sequence[Send]]
) -> tuple[list[float], float]:
    """Send each client's requests one after the other, all clients at once.

    Returns:
        Each request's seconds, and the seconds that all took together.
    """
    latencies: list[float] = []
    failures: list[BaseException] = []
    ready = threading.Barrier(len(sends) + 1)

    def client(own: Sequence[Send]) -> None:
        try:
            connection = connect()
            ready.wait()
            for send in own:
                began = time.perf_counter()
                send.by(connection)
                latencies.append(time.perf_counter() - began)
        except BaseException as error:
            failures.append(error)
            ready.abort()

    threads = [threading.Thread(target=client, args=(own,)) for own in sends]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):  # its cause is among the failures
        ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return latencies, time.perf_counter() - began


def paced(
    connection: Connection, kinds: Sequence[Iterator[Send]], ticks: int, every: float
) -> list[list[float]]:
    """Every ``every`` seconds one request of each kind is due, one behind the other.

    Returns:
        For each kind the seconds from when its requests were due until they were answered.
    """
    latencies: list[list[float]] = [[] for _ in kinds]
    start = time.perf_counter()
    for tick in range(ticks):
        for index, kind in enumerate(kinds):
            due = start + (tick + index / len(kinds)) * every
            time.sleep(max(0.0, due - time.perf_counter()))
            next(kind).by(connection)
            latencies[index].append(time.perf_counter() - due)
    return latencies


def percentile_ms(seconds: Sequence[float], percent: float) -> float:
    """The smallest measured value that at least ``percent`` % of the values don't exceed, in ms."""
    ordered = sorted(seconds)
    rank = max(1, -(-len(ordered) * percent // 100))
    return round(ordered[int(rank) - 1] * 1000, 2)
