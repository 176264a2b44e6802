"""Who may speak to the daemon."""

import http.client
import json
import re
import stat
import time

import pytest

from tests.service.daemon import Daemon


def ask(
    daemon: Daemon, headers: list[tuple[str, str]], path: str = "/v1/adapters"
) -> tuple[int, dict[str, str], bytes]:
    """A request with exactly these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=10)
    connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    answer = response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    connection.close()
    return answer


def host(daemon: Daemon) -> tuple[str, str]:
    return ("Host", f"127.0.0.1:{daemon.port}")


def bearer(daemon: Daemon) -> tuple[str, str]:
    return ("Authorization", f"Bearer {daemon.token}")


def test_the_token_opens(shared: Daemon) -> None:
    for name in ("127.0.0.1", "localhost"):
        status, headers, _ = ask(shared, [("Host", f"{name}:{shared.port}"), bearer(shared)])
        assert status == 200
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer {token}x",
        "Bearer {shorter}",
        "Basic {token}",
        "{token}",
        "Bearer \xff\xfe",
    ],
)
@pytest.mark.parametrize("path", ["/v1/adapters", "/v1/nothing", "/openapi.json", "/"])
def test_without_the_token_nothing_opens(
    shared: Daemon, authorization: str | None, path: str
) -> None:
    headers = [host(shared)]
    if authorization is not None:
        value = authorization.format(token=shared.token, shorter=shared.token[:-1])
        headers.append(("Authorization", value))
    status, answered, body = ask(shared, headers, path)
    assert status == 401
    assert answered["www-authenticate"] == "Bearer"
    assert answered["content-type"] == "application/problem+json"
    assert json.loads(body)["status"] == 401


def test_health_needs_no_token_but_the_right_host(shared: Daemon) -> None:
    assert ask(shared, [host(shared)], "/healthz")[0] == 200
    assert ask(shared, [("Host", "evil.example")], "/healthz")[0] == 403


@pytest.mark.parametrize(
    "name",
    [
        "evil.example:{port}",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:{other}",
        "127.0.0.1:{port}.evil.example",
        "localhost.:{port}",
        "[::1]:{port}",
        "0.0.0.0:{port}",
        "127.1:{port}",
        "",
    ],
)
def test_another_host_is_refused_even_with_the_token(shared: Daemon, name: str) -> None:
    value = name.format(port=shared.port, other=shared.port + 1)
    status, headers, _ = ask(shared, [("Host", value), bearer(shared)])
    assert status == 403
    assert headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "header",
    [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1:{port}"),
        ("Origin", ""),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Site", "sideways"),
    ],
)
def test_web_pages_are_refused_even_with_the_token(shared: Daemon, header: tuple[str, str]) -> None:
    name, value = header[0], header[1].format(port=shared.port)
    status, headers, _ = ask(shared, [host(shared), bearer(shared), (name, value)])
    assert status == 403
    assert headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("value", ["none", "same-origin"])
def test_the_address_bar_and_the_own_page_may(shared: Daemon, value: str) -> None:
    assert ask(shared, [host(shared), bearer(shared), ("Sec-Fetch-Site", value)])[0] == 200


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head(shared: Daemon) -> None:
    """With Nagle's algorithm on, every answer on a kept connection takes 40 ms and more."""
    took = []
    for _ in range(30):
        started = time.perf_counter()
        assert shared.http.get("/healthz").status_code == 200
        took.append(time.perf_counter() - started)
    assert min(took) < 0.035


def test_two_host_headers_are_refused(shared: Daemon) -> None:
    status, _, _ = ask(shared, [host(shared), ("Host", "evil.example"), bearer(shared)])
    assert status in (400, 403)


def test_only_loopback_is_bound(shared: Daemon) -> None:
    tables = "".join(
        open(f"/proc/{shared.process.pid}/net/{table}").read()  # noqa: PTH123, SIM115
        for table in ("tcp", "tcp6")
    )
    listening = re.findall(rf" ([0-9A-F]+):{shared.port:04X} \S+ 0A", tables)
    assert listening == ["0100007F"]


def test_what_is_kept_of_the_token_is_its_hash(shared: Daemon) -> None:
    token = shared.token.encode()
    assert len(token) >= 43  # 256 bits
    assert stat.S_IMODE((shared.home / "token").stat().st_mode) == 0o600
    for file in shared.home.rglob("*"):
        if file.is_file() and file.name != "token":
            assert token not in file.read_bytes(), file
    assert shared.token not in shared.log()
