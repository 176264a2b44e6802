"""Who may speak to the daemon."""

import http.client
import json
import re
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import httpx
import pytest

from tests.service.daemon import Daemon


def ask(
    daemon: Daemon,
    headers: list[tuple[str, str]],
    path: str = "/v1/adapters",
    method: str = "GET",
) -> tuple[int, dict[str, str], bytes]:
    """A request with exactly these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
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


NO_TOKENS = (
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
)


def test_without_the_token_nothing_opens(shared: Daemon) -> None:
    def attempt(authorization: str | None, path: str) -> None:
        headers = [host(shared)]
        if authorization is not None:
            value = authorization.format(token=shared.token, shorter=shared.token[:-1])
            headers.append(("Authorization", value))
        status, answered, body = ask(shared, headers, path)
        assert status == 401, (authorization, path)
        assert answered["www-authenticate"] == "Bearer"
        assert answered["content-type"] == "application/problem+json"
        assert json.loads(body)["status"] == 401

    paths = ("/v1/adapters", "/v1/nothing", "/openapi.json", "/page/nothing")
    with ThreadPoolExecutor(40) as threads:  # each of them waits out its penalty
        list(threads.map(attempt, *zip(*product(NO_TOKENS, paths), strict=True)))


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
        "127.0.0.1.:{port}",
        "LOCALHOST:{port}",
        "127.0.0.1:0{port}",
        " 127.0.0.1:{port}, evil.example",
        "user@127.0.0.1:{port}",
        "[::1]:{port}",
        "[::ffff:127.0.0.1]:{port}",
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
        ("Origin", "http://127.0.0.1:{other}"),
        ("Origin", "https://127.0.0.1:{port}"),
        ("Origin", "http://localhost:{port}"),
        ("Origin", "HTTP://127.0.0.1:{port}"),
        ("Origin", "http://127.0.0.1:{port}/"),
        ("Origin", "http://127.0.0.1:{port} http://evil.example"),
        ("Origin", "http://127.0.0.1:{port}.evil.example"),
        ("Origin", ""),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Site", "sideways"),
        ("Sec-Fetch-Site", "Same-Origin"),
        ("Sec-Fetch-Site", "none, cross-site"),
    ],
)
def test_web_pages_are_refused_even_with_the_token(shared: Daemon, header: tuple[str, str]) -> None:
    name, value = header[0], header[1].format(port=shared.port, other=shared.port + 1)
    status, headers, _ = ask(shared, [host(shared), bearer(shared), (name, value)])
    assert status == 403
    assert headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_the_address_bar_and_the_own_page_may(shared: Daemon, name: str, site: str) -> None:
    own = f"{name}:{shared.port}"
    headers = [("Host", own), ("Origin", f"http://{own}"), ("Sec-Fetch-Site", site)]
    status, answered, _ = ask(shared, [*headers, bearer(shared)])
    assert status == 200
    assert not [header for header in answered if header.startswith("access-control-")]


def test_an_origin_twice_is_refused_though_one_is_our_own(shared: Daemon) -> None:
    own = ("Origin", f"http://127.0.0.1:{shared.port}")
    for origins in ([own, ("Origin", "http://evil.example")], [("Origin", "null"), own]):
        assert ask(shared, [host(shared), bearer(shared), *origins])[0] == 403


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head(shared: Daemon) -> None:
    """With Nagle's algorithm on, every answer on a kept connection takes 40 ms and more."""
    took = []
    for _ in range(30):
        started = time.perf_counter()
        assert shared.http.get("/healthz").status_code == 200
        took.append(time.perf_counter() - started)
    assert min(took) < 0.035


def test_a_preflight_never_succeeds(shared: Daemon) -> None:
    asked = [("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "a")]
    for origin, token, expected in (
        ("https://evil.example", [bearer(shared)], 403),
        ("null", [], 403),
        (f"http://127.0.0.1:{shared.port}", [bearer(shared)], 405),
        (f"http://127.0.0.1:{shared.port}", [], 401),
    ):
        for path in ("/v1/adapters", "/v1/adapters/phone/examples"):
            headers = [host(shared), ("Origin", origin), *token, *asked]
            status, answered, _ = ask(shared, headers, path, "OPTIONS")
            assert status == expected
            assert not [header for header in answered if header.startswith("access-control-")]
    for path in ("/v1/pair", "/v1/hello", "/healthz"):
        assert ask(shared, [host(shared)], path, "OPTIONS")[0] == 405


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "text/plain; application/json",
        "text/plain;charset=application/json",
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/adapters", "/v1/adapters/phone/runs", "/v1/clients/notes/revoke", "/v1/pair"]
)
def test_a_body_that_a_form_could_send_is_refused(
    shared: Daemon, path: str, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    for content in (b"{}", iter([b"{}"])):  # with its length, and in chunks
        response = shared.http.post(path, content=content, headers=headers)
        assert response.status_code == 415, response.text


def test_lines_are_for_examples_only(shared: Daemon) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    for path in ("/v1/adapters", "/v1/adapters/phone/runs", "/v1/pairing-codes"):
        assert shared.http.post(path, content=b"{}\n", headers=headers).status_code == 415


def test_a_stranger_may_send_little(shared: Daemon) -> None:
    """Without a token nobody makes the daemon hold megabytes."""
    body = b'{"code": "' + b"1" * 5000 + b'"}'
    for content in (body, iter([body])):
        response = httpx.post(
            f"http://127.0.0.1:{shared.port}/v1/pair",
            content=content,
            headers={"Content-Type": "application/json"},
            trust_env=False,
        )
        assert response.status_code == 413, response.text


def test_two_authorization_headers_are_refused(shared: Daemon) -> None:
    other = ("Authorization", "Bearer other")
    for pair in ([bearer(shared), other], [other, bearer(shared)], [bearer(shared)] * 2):
        assert ask(shared, [host(shared), *pair])[0] == 401


@pytest.mark.parametrize(
    "start",
    [
        b"GET http://evil.example/v1/adapters HTTP/1.1",
        b"GET //v1/adapters HTTP/1.1",
        b"GET /v1/../healthz HTTP/1.1",
        b"GET /healthz/../v1/adapters HTTP/1.1",
        b"GET /healthz%2f..%2fv1/adapters HTTP/1.1",
        b"GET /v1/hello/ HTTP/1.1",
        b"GET /V1/HELLO HTTP/1.1",
        b"GET * HTTP/1.1",
        b"GET /v1/adapters#/healthz HTTP/1.1",
        b"PROPFIND /v1/adapters HTTP/1.1",
        b"CONNECT 127.0.0.1:80 HTTP/1.1",
    ],
)
def test_no_spelling_of_an_address_gets_past_the_guard(shared: Daemon, start: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), timeout=10) as connection:
        head = start + b"\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % shared.port
        connection.sendall(head)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.split()[1] in (b"400", b"401"), answer


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
