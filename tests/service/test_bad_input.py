"""Bad input against the real daemon: a 4xx that names the field, never a 500."""

import json
import socket
from typing import Any

import httpx
import pytest

from tests.service.daemon import CONTEXT, LAYERS, TEMPLATE_TOKENS, Daemon

EXAMPLES = "/v1/adapters/phone/examples"
GOOD = {"input": "hello", "label": "now"}
LONE = "\ud83d"


def fields(response: httpx.Response) -> list[str]:
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["title"]
    assert problem["detail"]
    return [error["field"] for error in problem.get("errors", [])]


def post_raw(daemon: Daemon, path: str, body: bytes, **headers: str) -> httpx.Response:
    return daemon.http.post(
        path, content=body, headers={"Content-Type": "application/json"} | headers
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"input": ""}, "input"),
        ({"input": "  \n\t "}, "input"),
        ({"input": "a\0b"}, "input"),
        ({"input": LONE}, "input"),
        ({"input": f"ok {LONE} ok"}, "input"),
        ({"input": "x" * 100_001}, "input"),
        ({"input": None}, "input"),
        ({"input": 7}, "input"),
        ({"input": ["hello"]}, "input"),
        ({"input": "x" * CONTEXT}, "input"),
        ({"label": ""}, "label"),
        ({"label": "\0"}, "label"),
        ({"label": LONE}, "label"),
        ({"label": "never"}, "label"),
        ({"label": "Now"}, "label"),
        ({"split": "test"}, "split"),
        ({"split": 1}, "split"),
        ({"external_id": ""}, "external_id"),
        ({"external_id": "x" * 201}, "external_id"),
        ({"external_id": 5}, "external_id"),
        ({"weight": 2}, "weight"),
    ],
    ids=lambda value: ascii(value)[:40],
)
@pytest.mark.parametrize("where", ["one", "fourth of many"])
def test_an_example_is_refused_by_its_field(
    shared: Daemon, change: dict[str, Any], field: str, where: str
) -> None:
    before = shared.adapter()["examples"]
    bad = GOOD | change
    body = bad if where == "one" else {"examples": [GOOD, GOOD, GOOD, bad]}
    # json.dumps writes a lone surrogate as its escape, which is how it comes over the wire
    response = post_raw(shared, EXAMPLES, json.dumps(body).encode())
    assert response.status_code == 422
    assert fields(response) == [f"body.{field}" if where == "one" else f"body.examples[3].{field}"]
    assert shared.adapter()["examples"] == before  # all or nothing


@pytest.mark.parametrize("missing", ["input", "label"])
def test_a_missing_field_is_named(shared: Daemon, missing: str) -> None:
    body = {key: value for key, value in GOOD.items() if key != missing}
    assert fields(shared.http.post(EXAMPLES, json=body)) == [f"body.{missing}"]


@pytest.mark.parametrize(
    ("number", "status"),
    [("NaN", 422), ("Infinity", 422), ("-Infinity", 422), ("1e999", 422), ("-1e999", 422)],
)
def test_numbers_beyond_json_are_refused_by_their_field(
    shared: Daemon, number: str, status: int
) -> None:
    body = f'{{"name": "nan", "base_model": "tiny", "alpha": {number}}}'.encode()
    response = post_raw(shared, "/v1/adapters", body)
    assert response.status_code == status
    assert fields(response) == ["body.alpha"]
    body = f'{{"examples": [{{"input": "a", "label": {number}}}]}}'.encode()
    response = post_raw(shared, EXAMPLES, body)
    assert fields(response) == ["body.examples[0].label"]


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        (b"", 422, ["body"]),
        (b"null", 422, ["body"]),
        (b"[]", 422, ["body"]),
        (b'"text"', 422, ["body"]),
        (b"7", 422, ["body"]),
        (b'{"input": "a", "label": "now"', 400, []),
        (b'{"input": "a", "label": "now"} x', 400, []),
        (b"{'input': 1}", 400, []),
        (b'{"input": "\xff\xfe", "label": "now"}', 400, []),
        (b'\xef\xbb\xbf{"input": "a", "label": "now"}', 400, []),
        ('{"input": "a", "label": "now"}'.encode("utf-16"), 400, []),
        (b'{"input": "a", "input": "b", "label": "now"}', 422, ["body.input"]),
        (b'{"examples": [{"input": "a", "label": "now", "label": "x"}]}', 422,
         ["body.examples[0].label"]),
        (b'{"input": ' + b"[" * 40 + b"]" * 40 + b', "label": "now"}', 422, None),
        (b"[" * 100_000, 400, []),
        (b'{"a":' * 100_000, 400, []),
        (b'{"input": ' + b"9" * 5000 + b', "label": "now"}', 400, []),
        (b'{"examples": []}', 422, ["body.examples"]),
        (b'{"examples": {}}', 422, ["body.examples"]),
        (b'{"examples": [], "input": "a"}', 422, None),
        (b'{"\\ud800": 1}', 422, None),
    ],
    ids=lambda value: ascii(value)[:30],
)  # fmt: skip
def test_broken_bodies(shared: Daemon, body: bytes, status: int, named: list[str] | None) -> None:
    response = post_raw(shared, EXAMPLES, body)
    assert response.status_code == status
    found = fields(response)
    assert named is None or found == named


def test_too_many_examples_at_once(shared: Daemon) -> None:
    response = shared.http.post(EXAMPLES, json={"examples": [GOOD] * 501})
    assert response.status_code == 422
    assert fields(response) == ["body.examples"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"method": "forward_gradient"}, "method"),
        ({"base_model": "absent"}, "base_model"),
        ({"base_model": "../tiny"}, "base_model"),
        ({"name": ""}, "name"),
        ({"name": "Phone"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"labels": ["now"]}, "labels"),
        ({"labels": []}, "labels"),
        ({"labels": ["now", "now"]}, "labels"),
        ({"labels": ["now", ""]}, "labels[1]"),
        ({"labels": ["now", " later"]}, "labels[1]"),
        ({"labels": ["now", "la\0ter"]}, "labels[1]"),
        ({"labels": ["now", 3]}, "labels[1]"),
        ({"labels": "now"}, "labels"),
        ({"labels": [f"label {n}" for n in range(201)]}, "labels"),
        ({"rank": 0}, "rank"),
        ({"rank": 65}, "rank"),
        ({"rank": 8.5}, "rank"),
        ({"rank": "8"}, "rank"),
        ({"rank": True}, "rank"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": -1}, "alpha"),
        ({"alpha": 1e9}, "alpha"),
        ({"targets": []}, "targets"),
        ({"targets": ["q_proj", "q_proj"]}, "targets"),
        ({"targets": ["lm_head"]}, "targets[0]"),
        ({"use_rslora": 1}, "use_rslora"),
        ({"top_layers": 0}, "top_layers"),
        ({"top_layers": LAYERS + 1}, "top_layers"),
        ({"top_layers": 1001}, "top_layers"),
        ({"top_layers": True}, "top_layers"),
        ({"top_layers": "all"}, "top_layers"),
        ({"max_tokens": CONTEXT + 1}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_tokens": 32}, "labels[0]"),
        ({"too_long": "split"}, "too_long"),
        ({"training": {"steps": 0}}, "training.steps"),
        ({"training": {"epochs": 0}}, "training.epochs"),
        ({"training": {"learning_rate": 2}}, "training.learning_rate"),
        ({"training": {"batch_size": None}}, "training.batch_size"),
        ({"training": {"momentum": 0.9}}, "training.momentum"),
        ({"training": {"seed": -1}}, "training.seed"),
        ({"retention": {"keep_days": 0}}, "retention.keep_days"),
        ({"retention": {"keep_days": 3651}}, "retention.keep_days"),
        ({"retention": {"keep_days": 1.5}}, "retention.keep_days"),
        ({"retention": {"max_examples": 0}}, "retention.max_examples"),
        ({"retention": {"max_examples": 1_000_001}}, "retention.max_examples"),
        ({"retention": {"days": 5}}, "retention.days"),
        ({"retention": None}, "retention"),
        ({"revision": 1}, "revision"),
        ({"colour": "red"}, "colour"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_an_adapter_is_refused_by_its_field(
    shared: Daemon, change: dict[str, Any], field: str
) -> None:
    body = {"name": "never", "base_model": "tiny", "labels": ["now and", "later"]} | change
    response = shared.http.post("/v1/adapters", json=body)
    assert response.status_code == 422, response.text
    assert fields(response) == [f"body.{field}"]
    assert shared.http.get("/v1/adapters/never").status_code == 404


def test_too_long_is_cut_where_the_adapter_says_so(shared: Daemon) -> None:
    """The tokenizer of these tests makes a token of every byte, so the sums are known."""
    response = shared.http.post(
        "/v1/adapters/cutting/examples", json={"input": "é" * 30, "label": "now"}
    )
    assert response.status_code == 201
    [example] = response.json()["examples"]
    assert example["cut_tokens"] == TEMPLATE_TOKENS + 60 + 3 + 8 - 64
    response = shared.http.post("/v1/adapters/cutting/examples", json=GOOD)
    assert response.json()["examples"][0]["cut_tokens"] == 0


def test_exactly_as_long_as_allowed_is_accepted(shared: Daemon) -> None:
    room = CONTEXT - TEMPLATE_TOKENS - len("now") - 8
    for length, status in ((room, 201), (room + 1, 422)):
        response = shared.http.post(EXAMPLES, json={"input": "y" * length, "label": "now"})
        assert response.status_code == status


def test_control_tokens_in_a_text_are_counted_as_plain_text(shared: Daemon) -> None:
    text = "<|im_end|>" * 30  # 30 control tokens, or 300 bytes
    response = shared.http.post(
        "/v1/adapters/cutting/examples", json={"input": text, "label": "now"}
    )
    [example] = response.json()["examples"]
    assert example["cut_tokens"] == TEMPLATE_TOKENS + 300 + 3 + 8 - 64


def test_control_tokens_in_a_label_are_counted_as_plain_text(shared: Daemon) -> None:
    label = "<|im_end|><|im_start|>"  # two control tokens, or 22 bytes
    shared.create_adapter("controlled", labels=[label, "now"], too_long="cut", max_tokens=64)
    for each in (label, "now"):
        response = shared.http.post(
            "/v1/adapters/controlled/examples", json={"input": "y" * 100, "label": each}
        )
        [example] = response.json()["examples"]
        assert example["cut_tokens"] == TEMPLATE_TOKENS + 100 + len(each) + 8 - 64


def test_a_free_label_too_long_for_any_input_is_refused(shared: Daemon) -> None:
    response = shared.http.post(
        "/v1/adapters/free/examples", json={"input": "a", "label": "z" * CONTEXT}
    )
    assert fields(response) == ["body.label"]


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/problem+json",
        "application/json; charset=utf-16",
        "application/jsonx",
        "",
    ],
)
def test_other_content_types(shared: Daemon, content_type: str) -> None:
    response = shared.http.post(
        EXAMPLES, content=json.dumps(GOOD).encode(), headers={"Content-Type": content_type}
    )
    assert response.status_code == 415
    fields(response)


def test_json_with_its_charset_is_json(shared: Daemon) -> None:
    body = json.dumps(GOOD | {"input": "charset"}).encode()
    response = post_raw(
        shared, EXAMPLES, body, **{"Content-Type": "Application/JSON;charset=UTF-8"}
    )
    assert response.status_code == 201


def test_compressed_bodies_are_refused(shared: Daemon) -> None:
    response = post_raw(shared, EXAMPLES, b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert response.status_code == 415


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/redoc", 404),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/adapters/absent", 404),
        ("GET", "/v1/adapters/%00", 404),
        ("GET", "/v1/adapters/%ff%fe", 404),
        ("GET", "/v1/adapters/absent/examples", 404),
        ("GET", "/v1/adapters/absent/runs", 404),
        ("GET", "/v1/adapters/absent/versions", 404),
        ("GET", "/v1/adapters/phone/versions/1", 404),
        ("GET", "/v1/adapters/phone/versions/1/download", 404),
        ("GET", "/v1/adapters/phone/versions/1/download?format=onnx", 422),
        ("GET", "/v1/adapters/phone/versions/0", 422),
        ("GET", "/v1/adapters/phone/versions/99999999999999999999", 422),
        ("GET", "/v1/runs/9999", 404),
        ("GET", "/v1/runs/0", 422),
        ("GET", "/v1/runs/x", 422),
        ("GET", "/v1/runs/9223372036854775808", 422),
        ("GET", "/v1/adapters/phone/examples?limit=0", 422),
        ("GET", "/v1/adapters/phone/examples?limit=1001", 422),
        ("GET", "/v1/adapters/phone/examples?cursor=5", 422),
        ("GET", "/v1/adapters/phone/examples/0", 422),
        ("GET", "/v1/adapters/phone/examples/x", 422),
        ("GET", "/v1/adapters/phone/examples/9223372036854775808", 422),
        ("GET", "/v1/adapters/phone/examples/9223372036854775807", 404),
        ("GET", "/v1/adapters/absent/examples/1", 404),
        ("GET", "/v1/adapters?limit=201", 422),
        ("GET", "/v1/adapters?cursor=x", 422),
        ("GET", "/v1/adapters/phone/versions?cursor=x", 422),
        ("PUT", "/v1/adapters", 405),
        ("HEAD", "/v1/adapters", 405),
        ("OPTIONS", "/v1/adapters", 405),
        ("DELETE", "/healthz", 405),
        ("POST", "/v1/adapters/empty/runs", 409),
    ],
)
def test_addresses_that_lead_nowhere(shared: Daemon, method: str, path: str, status: int) -> None:
    response = shared.http.request(method, path)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    if method != "HEAD":
        fields(response)
    if status == 405:
        assert response.headers["allow"]


def test_a_name_is_taken(shared: Daemon) -> None:
    response = shared.http.post("/v1/adapters", json={"name": "phone", "base_model": "tiny"})
    assert response.status_code == 409
    fields(response)


def test_the_database_is_as_full_as_the_answers_said(shared: Daemon) -> None:
    before = shared.adapter("free")["examples"]["train"]
    response = shared.http.post(
        "/v1/adapters/free/examples",
        json={"examples": [{"input": "kept", "label": "x", "split": "train"}] * 3},
    )
    assert response.status_code == 201
    assert shared.adapter("free")["examples"]["train"] == before + 3


def test_garbage_on_the_socket_does_not_disturb_the_daemon(shared: Daemon) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET\r\n\r\n", b"\0" * 70_000):
        with socket.create_connection(("127.0.0.1", shared.port), timeout=10) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            assert b"500" not in connection.recv(100)
    assert shared.http.get("/healthz").status_code == 200


def test_nothing_above_was_an_error_of_ours(shared: Daemon) -> None:
    assert "unhandled" not in shared.log()
    assert "Traceback" not in shared.log()
    assert shared.http.get("/v1/adapters/phone").status_code == 200
