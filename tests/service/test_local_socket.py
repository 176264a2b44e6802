"""The Unix socket: the same app, for this user alone, and what stands in its way."""

import re
import socket
import stat
from pathlib import Path

import httpx
import pytest

from service.door.local_socket import LocalSocket, LocalSocketError, local_socket
from tests.service.daemon import Daemon
from tests.service.test_cli import lorad


def over(daemon: Daemon, path: str, **headers: str) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.home / "lorad.sock"))) as http:
        return http.get(f"http://localhost{path}", headers=headers)


def test_it_answers_as_the_port_does_and_asks_for_the_token_too(shared: Daemon) -> None:
    path = shared.home / "lorad.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = {"Authorization": f"Bearer {shared.token}"}
    there = over(shared, "/v1/adapters/phone", **token)
    assert there.json() == shared.http.get("/v1/adapters/phone").json()
    assert over(shared, "/v1/adapters").status_code == 401
    assert over(shared, "/v1/adapters", **token, Host="example.org").status_code == 403
    assert over(shared, "/v1/adapters", **token, Origin="http://example.org").status_code == 403
    assert over(shared, "/healthz").status_code == 200


def test_localhost_without_the_port_is_no_name_of_the_port(shared: Daemon) -> None:
    assert shared.http.get("/v1/adapters", headers={"Host": "localhost"}).status_code == 403


def test_the_command_line_takes_the_socket_and_the_port_where_it_is_gone(daemon: Daemon) -> None:
    daemon.create_adapter()
    other = socket.create_server(("127.0.0.1", 0))
    with other:  # a port that answers nothing
        other.settimeout(0)
        state = daemon.home / "daemon.json"
        true = state.read_text()
        port = other.getsockname()[1]
        state.write_text(true.replace(f'"port": {daemon.port}', f'"port": {port}'))
        answer = lorad("adapters", "show", "phone", home=daemon.home)
        # The socket's host has no port in it: whatever the port, the daemon answers there.
        assert answer.returncode == 0, answer.stderr
        assert re.search(r"^adapter: +phone$", answer.stdout, re.MULTILINE)
        with pytest.raises(BlockingIOError):
            other.accept()
        state.write_text(true)
    assert lorad("adapters", "show", "phone", home=daemon.home).returncode == 0
    (daemon.home / "lorad.sock").unlink()
    assert lorad("adapters", "show", "phone", home=daemon.home).returncode == 0


def test_a_killed_daemons_socket_is_replaced_and_a_stopped_ones_is_gone(home: Path) -> None:
    with Daemon(home) as daemon:
        daemon.kill()
        assert (home / "lorad.sock").is_socket()
        daemon.start()
        assert over(daemon, "/healthz").status_code == 200
        assert daemon.stop() == 0
        assert not (home / "lorad.sock").exists()


def test_none_means_none(home: Path) -> None:
    with Daemon(home, environment={"LORAD_SOCKET": "none"}) as daemon:
        assert not (home / "lorad.sock").exists()
        daemon.create_adapter()
        assert lorad("adapters", "show", "phone", home=home).returncode == 0


def test_a_path_that_is_asked_for_is_had_or_refused(tmp_path: Path) -> None:
    asked = tmp_path / "s"
    kept = local_socket(str(asked), tmp_path / "lorad.sock")
    assert kept is not None
    assert kept.path == asked
    with pytest.raises(LocalSocketError, match="at most 107 bytes"):
        local_socket(str(tmp_path / ("x" * 120)), asked)
    kept.socket.listen()
    with pytest.raises(LocalSocketError, match="another program answers"):
        LocalSocket(asked)
    kept.close()
    assert not asked.exists()
    asked.write_text("a person's own")
    with pytest.raises(LocalSocketError, match="something else"):
        LocalSocket(asked)
    assert asked.read_text() == "a person's own"


def test_a_home_whose_path_is_too_long_has_no_socket_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert local_socket("", tmp_path / ("x" * 120) / "lorad.sock") is None
    assert "LORAD_SOCKET" in caplog.text
