"""The Kotlin client in a real JVM, with the real daemon and with who only pretends to be it."""

import itertools
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from api_schemas.adapters import DEFAULT_MODEL
from service.for_apps.lorad_client import Credentials
from tests.service.daemon import Daemon, add_stand_in_model
from tests.service.impostor import Behaviour, Impostor, http_answer, true_proof
from tests.service.kotlin.program import Program, compiled
from tests.service.test_python_client import (
    CANARY,
    PROVES_NOTHING,
    SCOPES,
    assert_only_asked,
    keys_sent,
    pairing_code,
    refusal,
    says,
)

pytestmark = pytest.mark.slow
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def kotlin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(compiled(tmp_path_factory.mktemp("kotlin")))
    yield program
    program.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With a model of the name that an adapter has where it names none."""
    home = tmp_path_factory.mktemp("shared") / "home"
    add_stand_in_model(home, DEFAULT_MODEL)
    with Daemon(home) as daemon:
        yield daemon


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "credentials"


@pytest.fixture
def paired(kotlin: Program, shared: Daemon, kept: Path) -> Path:
    code = pairing_code(shared, f"app-{next(_numbers)}", SCOPES)
    assert kotlin.value("pair", kept, port=shared.port, code=code) is True
    return kept


def keep(kept: Path, credentials: Credentials) -> str:
    kept.write_text(json.dumps(asdict(credentials)))
    return credentials.token


def test_the_sample_goes_from_the_code_to_an_answer(
    kotlin: Program, shared: Daemon, kept: Path
) -> None:
    code = pairing_code(shared, "sample")
    said, printed = kotlin.ask("sample", kept, port=shared.port, code=f"{code[:4]} {code[4:]}")
    assert said == {"value": True}
    counts = json.loads(printed[0])
    assert counts["train"] + counts["holdout"] == 2
    assert printed[1].startswith("snapshot ")
    assert "end completed" in printed
    assert printed[-3:] == ["1", "now 0.7", "done"]
    credentials = json.loads(kept.read_text())
    client = shared.http.get(
        "/v1/client", headers={"Authorization": f"Bearer {credentials['token']}"}
    )
    assert client.json()["name"] == "sample"
    rows = shared.pages("/v1/adapters/notices/examples", "examples", client="sample")[0]
    assert [row["input"] for row in rows] == ["The train leaves in 10 minutes"]


def test_a_refusal_tells_status_sentence_and_fields(kotlin: Program, paired: Path) -> None:
    body = {"name": "inbox", "labels": ["now", "later"]}
    kotlin.value("request", paired, method="POST", path="/v1/adapters", body=body)
    rows = [{"input": f"{CANARY} 1", "label": "now"}, {"input": "x", "label": "never"}]
    said = kotlin.error(
        "request",
        paired,
        method="POST",
        path="/v1/adapters/inbox/examples",
        body={"examples": rows},
    )
    assert (said["error"], said["status"]) == ("LoradException", 422)
    assert said["errors"][0][0] == "body.examples[1].label"
    assert said["errors"][0][1]
    assert said["detail"]
    counts = kotlin.value("request", paired, method="GET", path="/v1/adapters/inbox")["examples"]
    assert counts["train"] + counts["holdout"] == 0


def test_a_wrong_code_keeps_nothing(kotlin: Program, shared: Daemon, kept: Path) -> None:
    said = kotlin.error("pair", kept, port=shared.port, code="00000000")
    assert (said["error"], said["status"]) == ("LoradException", 403)
    assert not kept.exists()


def test_a_replaced_pairing_is_told_and_a_new_one_served(
    kotlin: Program, shared: Daemon, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for kept in (old, new):
        kotlin.value("pair", kept, port=shared.port, code=pairing_code(shared, "twice"))
    asked = {"method": "GET", "path": "/v1/client"}
    assert kotlin.error("request", old, **asked)["error"] == "NotLoradException"
    assert kotlin.value("request", new, **asked)["name"] == "twice"


@pytest.mark.parametrize("behave", PROVES_NOTHING)
def test_who_proves_nothing_gets_neither_token_nor_text(
    kotlin: Program, kept: Path, behave: Behaviour
) -> None:
    with Impostor(behave) as impostor:
        credentials = impostor.credentials()
        keep(kept, credentials)
        for do in ({"do": "post", "text": CANARY}, {"do": "watch", "run": 1}):
            said = kotlin.error(kept=kept, attempts=2, **do)
            assert said["error"] in ("NotLoradException", "EOFException", "SocketTimeoutException")
        assert_only_asked(impostor, credentials.token, credentials.server_key)


def test_who_answers_a_byte_at_a_time_is_not_waited_for(kotlin: Program, kept: Path) -> None:
    """The client's limit of a second is for the whole proof, not for each byte of it."""

    def trickle(connection: socket.socket, number: int, impostor: Impostor) -> None:
        impostor.hear(connection, number)
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n" + b"x" * 100:
            time.sleep(0.1)
            connection.sendall(bytes([byte]))

    with Impostor(trickle) as impostor:
        credentials = impostor.credentials()
        keep(kept, credentials)
        began = time.monotonic()
        said = kotlin.error("post", kept, text=CANARY, attempts=1)
        assert said["error"] == "SocketTimeoutException"
        assert time.monotonic() - began < 5
        assert_only_asked(impostor, credentials.token)


def test_who_takes_the_port_of_a_daemon_that_died_gets_nothing(
    kotlin: Program, home: Path, kept: Path
) -> None:
    with Daemon(home) as daemon:
        kotlin.value("pair", kept, port=daemon.port, code=pairing_code(daemon))
        asked = {"method": "GET", "path": "/v1/client", "attempts": 3}
        assert kotlin.value("request", kept, **asked)["name"] == "mail"  # open, and proved
        daemon.kill()
        with Impostor(says(http_answer({"proof": "x"})), daemon.port) as impostor:
            assert kotlin.error("post", kept, text=CANARY)["error"] == "NotLoradException"
            assert_only_asked(impostor, json.loads(kept.read_text())["token"])


@pytest.fixture
def busy(kept: Path) -> Iterator[tuple[Impostor, list[bytes]]]:
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
        keep(kept, impostor.credentials())
        yield impostor, answers


def test_what_passes_is_tried_again_under_the_same_key(
    kotlin: Program, kept: Path, busy: tuple[Impostor, list[bytes]]
) -> None:
    impostor, answers = busy
    answers += [
        refusal("503 Service Unavailable", "Retry-After: 0"),
        b"",
        refusal("507 Insufficient Storage", "Retry-After: 0"),
        http_answer({"examples": []}, "201 Created"),
        http_answer({"examples": []}, "201 Created"),
    ]
    assert kotlin.value("post", kept, text="one") == {"examples": []}
    assert kotlin.value("post", kept, text="two") == {"examples": []}
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
        (http_answer({}, "302 Found", "Location: http://127.0.0.1:1/"), 302, None),
        (http_answer(b"<html>", "404 Not Found"), 404, None),
    ],
)
def test_what_does_not_pass_is_thrown_at_once(
    kotlin: Program,
    kept: Path,
    busy: tuple[Impostor, list[bytes]],
    answer: bytes,
    status: int,
    retry_after: float | None,
) -> None:
    impostor, answers = busy
    answers.append(answer)
    said = kotlin.error("post", kept, text="one")
    assert (said["status"], said.get("retry_after")) == (status, retry_after)
    assert len(keys_sent(impostor.heard)) == 1


def test_events_go_on_after_a_break(kotlin: Program, kept: Path) -> None:
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

    with Impostor(behave) as impostor:
        keep(kept, impostor.credentials())
        assert kotlin.value("watch", kept, run=1) == [
            ["snapshot", {"step": 1}],
            ["step", {"step": 2}],
            ["end", {"step": 3}],
        ]
        asked = [
            b"".join(line for line in heard.split(b"\r\n") if b"Last-Event" in line)
            for heard in impostor.heard
        ]
        assert asked == [b"", b"Last-Event-ID: b-1", b"Last-Event-ID: b-1"]


def test_deleting_all_and_a_revoked_app(kotlin: Program, shared: Daemon, paired: Path) -> None:
    body = {"name": "inbox"}
    kotlin.value("request", paired, method="POST", path="/v1/adapters", body=body)
    kotlin.value(
        "request",
        paired,
        method="POST",
        path="/v1/adapters/inbox/examples",
        body={"examples": [{"input": "one", "label": "a"}, {"input": "two", "label": "b"}]},
    )
    assert kotlin.value("delete all", paired)["deleted"] == 2
    name = kotlin.value("request", paired, method="GET", path="/v1/client")["name"]
    assert shared.http.post(f"/v1/clients/{name}/revoke").status_code == 200
    said = kotlin.error("request", paired, method="GET", path="/v1/client")
    assert said["status"] == 401
