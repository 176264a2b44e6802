"""Examples one a line: all or nothing, with the lines of what is wrong."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.door import ndjson
from tests.service.daemon import CONTEXT, PATIENCE, Daemon, resident_kb

GOOD = {"input": "hello", "label": "now"}


def line(**change: Any) -> bytes:
    return json.dumps(GOOD | change).encode()


def post(
    daemon: Daemon, body: bytes | Iterator[bytes], name: str = "phone", **headers: str
) -> httpx.Response:
    return daemon.http.post(
        f"/v1/adapters/{name}/examples",
        content=body,
        headers={"Content-Type": "application/x-ndjson"} | headers,
    )


def faults(response: httpx.Response) -> list[tuple[int | None, str]]:
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return [(error.get("line"), error["field"]) for error in response.json()["errors"]]


def split(parts: Sequence[bytes]) -> list[tuple[int, bytes]]:
    async def all_lines() -> list[tuple[int, bytes]]:
        async def given() -> AsyncIterator[bytes]:
            for part in parts:
                yield part

        return [one async for one in ndjson.lines(given())]

    return asyncio.run(all_lines())


@given(st.lists(st.sampled_from([b"", b" ", b"\t", b"{}", b"a b", b"\r", b"x"])), st.data())
def test_lines_do_not_depend_on_where_the_parts_end(
    pieces: list[bytes], data: st.DataObject
) -> None:
    body = b"\n".join(pieces)
    cuts = data.draw(st.lists(st.integers(0, len(body))).map(sorted))
    parts = [body[a:b] for a, b in pairwise([0, *cuts, len(body)])]
    found = split(parts)
    assert found == split([body])
    numbered = list(enumerate(body.split(b"\n"), 1))
    assert [one for one in found if one[1]] == [one for one in numbered if one[1].strip()]
    blank = {number for number, text in numbered if not text.strip()}
    for number, _ in (one for one in found if not one[1]):
        assert number in blank
        assert number - 1 not in blank
        assert any(later > number for later, text in found if text)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n", b"\n \n"], ids=repr)
def test_lines_become_examples_in_their_order(shared: Daemon, end: bytes) -> None:
    name = (
        f"lines-{len(end)}-{end.count(b' ')}{end.count(b'{13}')}{int(b'r' in repr(end).encode())}"
    )
    shared.create_adapter(name)
    body = b"\n".join(line(input=f"text {n}", split="train") for n in range(7)) + end
    response = post(shared, body, name)
    assert response.status_code == 201, response.text
    kept = shared.http.get(f"/v1/adapters/{name}/examples").json()["examples"]
    assert [one["input"] for one in kept] == [f"text {n}" for n in range(7)]
    assert [one["id"] for one in response.json()["examples"]] == [one["id"] for one in kept]


def test_every_bad_line_is_named_and_nothing_is_kept(shared: Daemon) -> None:
    before = shared.adapter()["examples"]
    bad = [
        (line(), None),
        (b"{", "body"),
        (line(label="never"), "body.label"),
        (line(input=""), "body.input"),
        (b'"text"', "body"),
        (b'{"examples": []}', None),
        (b'{"input": "a", "input": "b", "label": "now"}', "body.input"),
        (b'{"input": "\xff", "label": "now"}', "body"),
        (b'{"input": "\\ud83d", "label": "now"}', "body.input"),
        (line(input="x" * CONTEXT), "body.input"),
        (b"", "body"),
        (line(weight=1), "body.weight"),
        (b'{"input": "a", "label": NaN}', "body.label"),
        (line(external_id="e"), None),
        (line(external_id="e", split="holdout"), None),
        (b"[" * 1000, "body"),
    ]
    response = post(shared, b"\n".join(text for text, _ in bad))
    found = faults(response)
    assert found == sorted(found, key=lambda one: one[0] or 0)
    expected = {(n, field) for n, (_, field) in enumerate(bad, 1) if field is not None}
    expected |= {(6, "body.input"), (6, "body.label"), (6, "body.examples")}
    assert set(found) == expected
    assert "line 1," not in response.text
    assert shared.adapter()["examples"] == before


def test_every_line_that_contradicts_another_is_named(shared: Daemon) -> None:
    lines = [
        line(input="one", split="train", external_id="c1"),
        line(input="two", split="train", external_id="c2"),
        line(input=" ONE ", split="holdout"),
        line(input="three", external_id="c2"),
        line(input="Two", split="holdout"),
    ]
    found = faults(post(shared, b"\n".join(lines)))
    assert found == [(3, "body.split"), (4, "body.external_id"), (5, "body.split")]


def test_a_hundred_faults_are_told_and_no_more(shared: Daemon) -> None:
    found = faults(post(shared, b"\n".join([b"{}"] * 5000)))
    assert len(found) == 100
    assert found[0] == (1, "body.input")


@pytest.mark.parametrize("body", [b"", b"\n", b"\n \n\r\n"], ids=repr)
def test_a_body_without_lines(shared: Daemon, body: bytes) -> None:
    response = post(shared, body)
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == ["body"]


def test_ten_thousand_lines_and_not_one_more(shared: Daemon) -> None:
    shared.create_adapter("many")
    lines = [line(input=f"m {n}", split="train") for n in range(10_001)]
    began = time.monotonic()
    assert faults(post(shared, b"\n".join(lines), "many")) == [(None, "body")]
    response = post(shared, b"\n".join(lines[1:]), "many")
    assert response.status_code == 201
    assert len(response.json()["examples"]) == 10_000
    assert shared.adapter("many")["examples"]["train"] == 10_000
    assert time.monotonic() - began < PATIENCE


def test_parts_of_any_size_and_one_key(shared: Daemon) -> None:
    """Chunked, a byte at a time, and the same again whole: one effect."""
    shared.create_adapter("chunked")
    body = line(input="é" * 20) + b"\n" + line(input="日本語") + b"\n"

    def bytewise() -> Iterator[bytes]:
        for index in range(len(body)):
            yield body[index : index + 1]

    first = post(shared, bytewise(), "chunked", **{"Idempotency-Key": "k"})
    again = post(shared, body, "chunked", **{"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["idempotent-replay"] == "true"
    other = post(shared, body + b" ", "chunked", **{"Idempotency-Key": "k"})
    assert other.status_code == 409
    kept = shared.http.get("/v1/adapters/chunked/examples").json()["examples"]
    assert [one["input"] for one in kept] == ["é" * 20, "日本語"]


def test_a_body_over_the_limit_is_413_and_keeps_nothing(shared: Daemon) -> None:
    shared.create_adapter("large")
    one = line(input="x" * 400) + b"\n"

    def parts() -> Iterator[bytes]:
        for _ in range(3 * 1024 * 1024 // len(one)):
            yield one

    assert post(shared, parts(), "large").status_code == 413
    assert shared.adapter("large")["examples"]["bytes"] == 0


def test_a_body_that_breaks_off_keeps_nothing(shared: Daemon) -> None:
    shared.create_adapter("broken")
    with socket.create_connection(("127.0.0.1", shared.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/adapters/broken/examples HTTP/1.1\r\n"
            + f"Host: 127.0.0.1:{shared.port}\r\nAuthorization: Bearer {shared.token}\r\n".encode()
            + b"Content-Type: application/x-ndjson\r\nContent-Length: 100000\r\n\r\n"
            + line() + b"\n" + line()
        )  # fmt: skip
    time.sleep(0.3)
    assert shared.adapter("broken")["examples"]["bytes"] == 0
    assert "Traceback" not in shared.log()
    assert "unhandled" not in shared.log()


@pytest.mark.parametrize(
    "content_type", ["application/ndjson", "application/x-ndjson; charset=latin-1", "text/plain"]
)
def test_other_types_are_415(shared: Daemon, content_type: str) -> None:
    assert post(shared, line(), **{"Content-Type": content_type}).status_code == 415


def test_only_this_route_takes_lines(shared: Daemon) -> None:
    response = shared.http.post(
        "/v1/adapters",
        content=b'{"name": "lined", "base_model": "tiny"}',
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert response.status_code == 415


def test_members_that_nobody_expects_do_not_fill_the_memory(shared: Daemon) -> None:
    members = b",".join(b'"%x":1' % number for number in range(190_000))
    body = b'{"input": "a", "label": "now", ' + members + b"}"
    post(shared, b" " * 2_000_000)  # the largest body there may be
    before = resident_kb(shared.process.pid)
    assert faults(post(shared, body)) == [(1, "body")]
    for path in ("/v1/adapters/phone/examples", "/v1/adapters"):
        response = shared.http.post(
            path, content=body, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 400
    grown = resident_kb(shared.process.pid) - before
    assert grown < 48 * 1024, f"{grown} kB"  # a fault told for each of them took 250 MB


def test_the_document_describes_the_lines(shared: Daemon) -> None:
    document = shared.http.get("/openapi.json").json()
    operation = document["paths"]["/v1/adapters/{name}/examples"]["post"]
    content = operation["requestBody"]["content"]
    assert set(content) == {"application/json", "application/x-ndjson"}
    assert post(shared, content["application/x-ndjson"]["example"].encode()).status_code == 201
    assert "429" in operation["responses"]
