"""The client for other apps, with the real daemon and with who only pretends to be it."""

import base64
import http.client
import io
import json
import re
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.for_apps.lorad_client import Credentials, Lorad, LoradError, NotLoradError, pair
from tests.service.daemon import Daemon
from tests.service.impostor import Behaviour, Impostor, http_answer, true_proof

CANARY = "canary-7c21"
SCOPES = [
    "examples:write",
    "status:read",
    "adapters:manage",
    "train",
    "predict",
    "adapters:download",
]


def pairing_code(daemon: Daemon, name: str = "mail", scopes: list[str] = SCOPES) -> str:
    body = {"name": name, "scopes": scopes, "replace": True}
    response = daemon.http.post("/v1/pairing-codes", json=body)
    assert response.status_code == 201, response.text
    return str(response.json()["code"])


def text(number: int) -> dict[str, Any]:
    return {"input": f"{CANARY} {number}", "label": "now", "external_id": str(number)}


def test_an_app_from_its_pairing_to_its_adapter(daemon: Daemon) -> None:
    daemon.script(steps=12, step_seconds=0.02)
    credentials = pair(daemon.port, pairing_code(daemon))
    assert credentials.client == "mail"
    assert credentials.token not in repr(credentials)
    assert credentials.server_key not in repr(credentials)
    kept = json.loads(json.dumps(vars(credentials)))
    with Lorad(Credentials(**kept)) as lorad:
        assert lorad.request("GET", "/v1/client")["name"] == "mail"
        settings = {"name": "inbox", "base_model": "tiny", "labels": ["now", "later"]}
        lorad.request("POST", "/v1/adapters", settings)
        accepted = lorad.post_examples("inbox", [text(number) for number in range(40)])
        assert len(accepted["examples"]) == 40
        counts = lorad.adapter("inbox")["examples"]
        assert counts["train"] + counts["holdout"] == 40
        run = lorad.train("inbox", seed=7)
        deadline = time.monotonic() + 30
        while lorad.run(run["id"])["status"] != "completed":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert lorad.run(run["id"])["version"] == 1
        said = lorad.predict("inbox", "see you later", "are you there now?", prior=False)
        assert said["version"] == 1
        assert [one["label"] for one in said["predictions"]] == ["later", "now"]
        archive = zipfile.ZipFile(io.BytesIO(lorad.download("inbox", 1)))
        assert "adapter_config.json" in archive.namelist()
        with pytest.raises(LoradError) as refused:
            lorad.post_examples("inbox", [text(1), {"input": "x", "label": "never"}])
        assert refused.value.status == 422
        assert refused.value.errors[0]["field"] == "body.examples[1].label"
        with pytest.raises(LoradError, match="404"):
            lorad.adapter("../no such?")


def test_events_of_a_live_run_to_its_end(daemon: Daemon) -> None:
    daemon.script(steps=12, step_seconds=0.05)
    with Lorad(pair(daemon.port, pairing_code(daemon))) as lorad:
        lorad.request("POST", "/v1/adapters", {"name": "inbox", "base_model": "tiny"})
        lorad.post_examples("inbox", [text(number) for number in range(40)])
        run = lorad.train("inbox")["id"]
        events = list(lorad.events(run))
        assert events[0][0] == "snapshot"
        assert events[-1][0] == "end"
        assert events[-1][1]["status"] == "completed"
        steps = [data["step"] for event, data in events if event == "step"]
        assert steps == sorted(set(steps))


def test_deleting_examples(daemon: Daemon) -> None:
    with Lorad(pair(daemon.port, pairing_code(daemon))) as lorad:
        lorad.request("POST", "/v1/adapters", {"name": "inbox", "base_model": "tiny"})
        lorad.post_examples("inbox", [text(number) for number in range(40)])
        assert lorad.delete_examples("inbox", external_id="3")["deleted"] == 1
        assert lorad.delete_examples("inbox")["deleted"] == 39
        counts = lorad.adapter("inbox")["examples"]
        assert counts["train"] + counts["holdout"] == 0


def test_a_wrong_code_is_refused_and_a_replaced_pairing_is_told(daemon: Daemon) -> None:
    with pytest.raises(LoradError) as refused:
        pair(daemon.port, "00000000")
    assert refused.value.status == 403
    before = pair(daemon.port, pairing_code(daemon))
    after = pair(daemon.port, pairing_code(daemon))
    with Lorad(before) as lorad, pytest.raises(NotLoradError):
        lorad.request("GET", "/v1/client")
    with Lorad(after) as lorad:
        assert lorad.request("GET", "/v1/client")["name"] == "mail"


def test_a_revoked_app_is_told_so(daemon: Daemon) -> None:
    credentials = pair(daemon.port, pairing_code(daemon))
    with Lorad(credentials) as lorad:
        lorad.request("GET", "/v1/client")
        assert daemon.http.post("/v1/clients/mail/revoke").status_code == 200
        with pytest.raises(LoradError) as refused:
            lorad.request("GET", "/v1/client")
        assert refused.value.status == 401


def says(answer: bytes) -> Behaviour:
    def behave(connection: socket.socket, number: int, impostor: Impostor) -> None:
        impostor.hear(connection, number)
        connection.sendall(answer)

    return behave


def silent(connection: socket.socket, number: int, impostor: Impostor) -> None:
    impostor.hear(connection, number)
    connection.shutdown(socket.SHUT_RDWR)


def proves_another_port(connection: socket.socket, number: int, impostor: Impostor) -> None:
    connection.sendall(http_answer(true_proof(impostor.hear(connection, number), 8765)))


def assert_only_asked(impostor: Impostor, *secrets: str) -> None:
    assert impostor.heard
    for heard in impostor.heard:
        for line in re.findall(rb"^\S+ \S+ HTTP/1\.1\r$", heard, re.MULTILINE):
            assert line.startswith(b"GET /v1/hello?nonce=")
        for secret in (CANARY, *secrets):
            assert secret.encode() not in heard


PROVES_NOTHING: list[Behaviour] = [
    silent,
    proves_another_port,
    says(b"SSH-2.0-OpenSSH\r\n\r\n"),
    says(http_answer({"proof": ""})),
    says(http_answer({"proof": None})),
    says(http_answer({"proof": "\ud800"})),
    says(http_answer(["proof"])),
    says(http_answer(b"[" * 4000)),
    says(http_answer({"proof": base64.urlsafe_b64encode(b"x" * 32).decode().rstrip("=")})),
    says(http_answer({"status": 404, "detail": "?"}, "404 Not Found")),
    says(http_answer({}, "302 Found", "Location: http://127.0.0.1:1/v1/hello")),
    says(http_answer({}, "100 Continue")),
    says(b"HTTP/1.0 200 OK\r\n\r\n{}"),
    says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n"),
]


@pytest.mark.parametrize("behave", PROVES_NOTHING)
def test_who_proves_nothing_gets_neither_token_nor_text(behave: Behaviour) -> None:
    with Impostor(behave) as impostor:
        credentials = impostor.credentials()
        refusals = (NotLoradError, OSError, http.client.HTTPException)
        with Lorad(credentials, patience=0.01, attempts=2, timeout=0.5) as lorad:
            with pytest.raises(refusals):
                lorad.post_examples("inbox", [text(1)])
            with pytest.raises(refusals):
                list(lorad.events(1))
        assert_only_asked(impostor, credentials.token, credentials.server_key)


def test_who_passes_the_question_on_to_the_daemon_gets_nothing(shared: Daemon) -> None:
    true = pair(shared.port, pairing_code(shared, "relayed"))

    def relay(connection: socket.socket, number: int, impostor: Impostor) -> None:
        request = impostor.hear(connection, number)
        with socket.create_connection(("127.0.0.1", shared.port)) as daemon:
            ports = str(impostor.port).encode(), str(shared.port).encode()
            daemon.sendall(request.replace(b"127.0.0.1:" + ports[0], b"127.0.0.1:" + ports[1]))
            daemon.settimeout(1)
            connection.sendall(daemon.recv(65_536))

    with Impostor(relay) as impostor:
        fooled = Credentials(**vars(true) | {"port": impostor.port})
        with Lorad(fooled) as lorad, pytest.raises(NotLoradError):
            lorad.post_examples("inbox", [text(1)])
        assert_only_asked(impostor, true.token, true.server_key)
    with Lorad(true) as lorad:  # the same question on the true port is answered
        assert lorad.request("GET", "/v1/client")["name"] == "relayed"


def test_who_takes_the_port_of_a_daemon_that_died_gets_nothing(daemon: Daemon) -> None:
    credentials = pair(daemon.port, pairing_code(daemon))
    with Lorad(credentials, patience=0.01, attempts=3) as lorad:
        lorad.request("GET", "/v1/client")  # the connection is open and proved
        daemon.kill()
        with Impostor(says(http_answer({"proof": "x"})), daemon.port) as impostor:
            with pytest.raises(NotLoradError):
                lorad.post_examples("inbox", [text(1)])
            assert_only_asked(impostor, credentials.token)


def test_a_daemon_that_was_restarted_is_asked_anew_and_served(home: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (
        Daemon(home, environment={"LORAD_PORT": str(port)}) as daemon,
        Lorad(pair(port, pairing_code(daemon)), patience=0.5) as lorad,
    ):
        lorad.request("POST", "/v1/adapters", {"name": "inbox", "base_model": "tiny"})
        daemon.kill()
        daemon.start()
        assert len(lorad.post_examples("inbox", [text(1)])["examples"]) == 1
        daemon.stop()
        with pytest.raises(OSError, match="refused"):
            lorad.adapter("inbox")
        daemon.start()
        counts = lorad.adapter("inbox")["examples"]
        assert counts["train"] + counts["holdout"] == 1


@pytest.mark.parametrize("headers", [(), ("Connection: close",)])
def test_a_connection_that_breaks_after_its_proof_proves_nothing_for_the_next(
    headers: tuple[str, ...],
) -> None:
    def behave(connection: socket.socket, number: int, impostor: Impostor) -> None:
        request = impostor.hear(connection, number)
        if number == 0:
            connection.sendall(http_answer(true_proof(request, impostor.port), "200 OK", *headers))
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(http_answer({"proof": "x"}))

    with Impostor(behave) as impostor:
        credentials = impostor.credentials()
        with Lorad(credentials, patience=0.01) as lorad, pytest.raises(NotLoradError):
            lorad.post_examples("inbox", [text(1)])
        assert len(impostor.heard) == 2
        assert credentials.token.encode() not in impostor.heard[1]
        assert CANARY.encode() not in impostor.heard[1]


def keys_sent(heard: list[bytes]) -> list[bytes]:
    return [key for each in heard for key in re.findall(rb"Idempotency-Key: (\S+)", each)]


@pytest.fixture
def busy() -> Iterator[tuple[Impostor, list[bytes]]]:
    """One that proves itself and gives the listed answers in turn; b"" breaks the connection."""
    answers: list[bytes] = []

    def behave(connection: socket.socket, number: int, impostor: Impostor) -> None:
        request = impostor.hear(connection, number)
        connection.sendall(http_answer(true_proof(request, impostor.port)))
        while answers and impostor.hear(connection, number):
            answer = answers.pop(0)
            connection.sendall(answer)
            if not answer:
                connection.shutdown(socket.SHUT_RDWR)
                return

    with Impostor(behave) as impostor:
        yield impostor, answers


def refusal(status: str, *headers: str) -> bytes:
    return http_answer({"status": int(status[:3]), "detail": "no"}, status, *headers)


def test_what_passes_is_tried_again_under_the_same_key(
    busy: tuple[Impostor, list[bytes]],
) -> None:
    impostor, answers = busy
    answers += [
        refusal("503 Service Unavailable", "Retry-After: 0"),
        b"",
        refusal("507 Insufficient Storage", "Retry-After: 0"),
        http_answer({"examples": []}, "201 Created"),
        http_answer({"examples": []}, "201 Created"),
    ]
    with Lorad(impostor.credentials(), patience=1) as lorad:
        assert lorad.post_examples("inbox", [text(1)]) == {"examples": []}
        lorad.post_examples("inbox", [text(1)])
    keys = keys_sent(impostor.heard)
    assert len(keys) == 5
    assert len(set(keys[:4])) == 1
    assert keys[4] != keys[0]
    assert [each.count(b"GET /v1/hello") for each in impostor.heard] == [1, 1]


@pytest.mark.parametrize(
    ("answer", "status", "retry_after"),
    [
        (refusal("429 Too Many Requests", "Retry-After: 3600"), 429, 3600),
        (refusal("503 Service Unavailable"), 503, None),
        (refusal("409 Conflict"), 409, None),
    ],
)
def test_what_does_not_pass_is_raised_at_once(
    busy: tuple[Impostor, list[bytes]], answer: bytes, status: int, retry_after: float | None
) -> None:
    impostor, answers = busy
    answers.append(answer)
    with Lorad(impostor.credentials()) as lorad, pytest.raises(LoradError) as refused:
        lorad.train("inbox")
    assert (refused.value.status, refused.value.retry_after) == (status, retry_after)
    assert len(keys_sent(impostor.heard)) == 1


def test_attempts_end(busy: tuple[Impostor, list[bytes]]) -> None:
    impostor, answers = busy
    answers += [refusal("503 Service Unavailable", "Retry-After: 0")] * 9
    with Lorad(impostor.credentials(), attempts=3) as lorad, pytest.raises(LoradError):
        lorad.adapter("inbox")
    assert len(answers) == 6


def test_it_is_one_file_of_the_standard_library() -> None:
    path = Path(__file__).parents[2] / "service/for_apps/lorad_client.py"
    imported = re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE)
    assert set(imported) == {
        "base64", "collections", "contextlib", "dataclasses", "hashlib", "hmac", "http", "json",
        "secrets", "time", "typing", "urllib",
    }  # fmt: skip


def test_events_go_on_after_a_break() -> None:
    def event(number: int, kind: str) -> bytes:
        return f'id: b-{number}\nevent: {kind}\ndata: {{"step":\ndata: {number}}}\n\n'.encode()

    streams = [
        [b": keep alive\n\n", event(1, "snapshot"), b"id: b-2\nevent: st"],
        [],
        [event(2, "step"), b"\n\n", event(3, "end")],
    ]

    def behave(connection: socket.socket, number: int, impostor: Impostor) -> None:
        request = impostor.hear(connection, number)
        connection.sendall(http_answer(true_proof(request, impostor.port)))
        impostor.hear(connection, number)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        connection.sendall(head + b"".join(streams[number]))
        connection.shutdown(socket.SHUT_RDWR)

    with Impostor(behave) as impostor, Lorad(impostor.credentials(), patience=0.01) as lorad:
        assert list(lorad.events(1)) == [
            ("snapshot", {"step": 1}),
            ("step", {"step": 2}),
            ("end", {"step": 3}),
        ]
        asked = [re.findall(rb"Last-Event-ID: (\S+)", heard) for heard in impostor.heard]
        assert asked == [[], [b"b-1"], [b"b-1"]]


def test_proxies_are_ignored(shared: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = pair(shared.port, pairing_code(shared, "unproxied"))
    with Impostor(silent) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(httpx.HTTPError):  # who obeys them does reach it
            httpx.get(f"http://127.0.0.1:{shared.port}/healthz")
        heard = len(proxy.heard)
        with Lorad(credentials) as lorad:
            lorad.request("GET", "/v1/client")
        assert len(proxy.heard) == heard
