"""What an app can do to the socket itself, and that the others don't notice."""

import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.door.body_limit import MOST_STRANGERS_SECONDS
from service.door.connections import MOST_CONNECTIONS
from tests.service.daemon import CHANGED, Daemon

BURST = 3 * 128  # connections that may be accepted before the oldest are closed and gone


def files(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


@contextmanager
def crowd(daemon: Daemon, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    """Many connections that say this and then nothing."""
    connections = []
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=30)
            connections.append(connection)
            connection.sendall(said)
        yield connections
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    "said", [b"", b"GET /healthz HTTP/1.1\r\nHost: ", b"GET / HTTP/1.1\r\n\r\nGET / HTTP"]
)
def test_a_crowd_that_says_nothing_keeps_nobody_out(daemon: Daemon, said: bytes) -> None:
    before = files(daemon)
    limit = before + MOST_CONNECTIONS + BURST
    assert limit < 1000  # what a process may open where nothing is said about it
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    with crowd(daemon, MOST_CONNECTIONS + 2 * BURST, said):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as good:
                good.sendall(
                    b"GET /v1/client HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n"
                    b"Authorization: Bearer %s\r\n\r\n" % (daemon.port, daemon.token.encode())
                )
                assert good.recv(12) == b"HTTP/1.1 200"
        assert files(daemon) <= limit
        assert daemon.http.get("/v1/clients").status_code == 200  # opens the database's files too
    assert "Traceback" not in daemon.log()


def test_a_request_at_work_is_not_closed_for_a_crowd(daemon: Daemon) -> None:
    daemon.create_adapter()
    body = b'{"input": "hello", "label": "now"}'
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as slow:
        slow.sendall(
            b"POST /v1/adapters/phone/examples HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s"
            % (daemon.port, daemon.token.encode(), len(body), body[:9])
        )
        time.sleep(0.2)
        with crowd(daemon, MOST_CONNECTIONS + 50, b"") as connections:
            slow.sendall(body[9:])
            assert slow.recv(12) == b"HTTP/1.1 201"
            connections[0].settimeout(5)
            assert connections[0].recv(1) == b""  # the oldest idle ones had to go


def test_a_stranger_may_not_send_slowly(home: Path) -> None:
    assert MOST_STRANGERS_SECONDS <= 10
    most = 2.0
    changed = {"service.door.body_limit:MOST_STRANGERS_SECONDS": most}
    with (
        Daemon(home, program=CHANGED, environment={"CHANGED": json.dumps(changed)}) as daemon,
        socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as slow,
    ):
        started = time.monotonic()
        slow.sendall(
            b"POST /v1/pair HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n" % daemon.port
        )
        slow.settimeout(0.1)
        answer = b""
        while not answer and time.monotonic() - started < 20:
            slow.sendall(b" ")  # each byte in time, and all of them too late
            try:
                answer = slow.recv(4096)
            except TimeoutError:
                time.sleep(0.2)
        assert answer.startswith(b"HTTP/1.1 408"), answer
        assert time.monotonic() - started >= most
        slow.settimeout(5)
        while slow.recv(4096):
            pass


def test_a_head_without_end_is_refused(shared: Daemon) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: " + b"x" * 20_000)
        assert connection.recv(12) == b"HTTP/1.1 400"


def test_nobody_else_gets_the_port_of_the_other_loopback(home: Path) -> None:
    """Whoever dials localhost may mean ::1, where a relay of `hello` would be believed."""
    with (
        Daemon(home) as daemon,
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as squatter,
    ):
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            squatter.bind(("::1", daemon.port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("::1", daemon.port), timeout=5)
    port = str(daemon.port)
    with (
        socket.create_server(("::1", daemon.port), family=socket.AF_INET6),
        Daemon(home, environment={"LORAD_PORT": port}) as daemon,
    ):
        assert "never localhost" in daemon.log()
        assert daemon.http.get("/healthz").status_code == 200
