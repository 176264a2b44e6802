"""POST /v1/adapters/{name}/predict, answered by the stand-in predictor."""

import sqlite3
from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.service.apps import pair
from tests.service.daemon import Daemon, until
from tests.service.stand_in_predictor import TOO_LONG

CANARY = "canary-text-91c4"


def ask(daemon: Daemon, adapter: str = "phone", **body: Any) -> httpx.Response:
    return daemon.http.post(f"/v1/adapters/{adapter}/predict", json=body)


def answer(daemon: Daemon, adapter: str = "phone", **body: Any) -> dict[str, Any]:
    response = ask(daemon, adapter, **body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_a_label_with_the_probabilities_of_all_of_them(shared: Daemon) -> None:
    shared.create_adapter("three", labels=["now", "later", "never"])
    found = answer(shared, "three", input="come later")
    assert (found["version"], found["engine"]) == (None, "stand_in")
    [one] = found["predictions"]
    assert (one["label"], one["probability"], one["cut_tokens"]) == ("later", 0.7, 0)
    assert one["labels"][0]["label"] == "later"
    assert {share["label"] for share in one["labels"]} == {"now", "later", "never"}
    shares = [share["probability"] for share in one["labels"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)


def test_many_inputs_in_their_order(shared: Daemon) -> None:
    inputs = [("later " if number % 3 else "now ") + str(number) for number in range(100)]
    found = answer(shared, inputs=inputs)["predictions"]
    assert [one["label"] for one in found] == [text.split()[0] for text in inputs]
    assert ask(shared, inputs=[*inputs, "one more"]).status_code == 422


def test_the_prior_is_that_of_the_adapters_own_examples(ready: Daemon) -> None:
    # 50 examples are labelled "now"; the stand-in answers the most frequent label of the history.
    assert answer(ready, ready.name, input="later", prior=True)["predictions"][0]["label"] == "now"
    assert answer(ready, ready.name, input="later")["predictions"][0]["label"] == "later"
    assert answer(ready, "empty", input="later", prior=True)["predictions"][0]["label"] == "later"


def test_the_active_version_answers_or_the_one_that_is_named(own: Daemon) -> None:
    assert answer(own, input="now")["version"] is None
    for _ in range(2):
        assert own.wait_until_ended(own.train())["status"] == "completed"
    active = own.adapter()["active_version"]["number"]
    assert answer(own, input="now")["version"] == active
    other = 3 - active
    assert answer(own, input="now", version=other)["version"] == other
    told = (own.home / "predictor.log").read_text().splitlines()
    asked = [line for line in told if "labels of" in line]  # that one is over may be told later
    paths = [f"labels of adapters/1/versions/run-{number:08d}" for number in (active, other)]
    assert paths[0] in asked[-2]
    assert paths[1] in asked[-1]
    response = ask(own, input="now", version=7)
    assert response.status_code == 404
    for file in (own.home / f"adapters/1/versions/run-{other:08d}").iterdir():
        file.unlink()
    assert ask(own, input="now", version=other).status_code == 410
    assert answer(own, input="now")["version"] == active


def test_text_of_an_adapter_without_labels(shared: Daemon) -> None:
    found = answer(shared, "free", inputs=["a", "b"], max_tokens=3, seed=1)
    assert [one["text"] for one in found["predictions"]] == ["two three four"] * 2
    usage = {"prompt_tokens": 1, "completion_tokens": 3}
    assert found["predictions"][0] | {"text": ""} == {
        "text": "",
        "finish_reason": "length",
        "usage": usage,
    }
    stopped = answer(shared, "free", input="a", stop=["fo", "x"])["predictions"][0]
    assert (stopped["text"], stopped["finish_reason"]) == ("one two three", "stop")


@pytest.mark.parametrize(
    ("adapter", "body", "field"),
    [
        ("phone", {}, "body"),
        ("phone", {"input": "a", "inputs": ["b"]}, "body"),
        ("phone", {"inputs": []}, "body.inputs"),
        ("phone", {"inputs": ["a", "\0"]}, "body.inputs[1]"),
        ("phone", {"input": " "}, "body.input"),
        ("phone", {"input": "a" * 100_001}, "body.input"),
        ("phone", {"input": "a", "temperature": 0.5}, "body.temperature"),
        ("phone", {"input": "a", "stream": True}, "body.stream"),
        ("phone", {"input": TOO_LONG}, "body.input"),
        ("phone", {"inputs": ["a", "b", TOO_LONG]}, "body.inputs[2]"),
        ("free", {"input": "a", "prior": True}, "body.prior"),
        ("free", {"input": "a", "top_p": 0}, "body.top_p"),
        ("free", {"input": "a", "temperature": 2.1}, "body.temperature"),
        ("free", {"input": "a", "stop": ["a"] * 5}, "body.stop"),
        ("free", {"input": "a", "max_tokens": 4097}, "body.max_tokens"),
    ],
)
def test_what_cannot_be_answered_names_its_field(
    shared: Daemon, adapter: str, body: dict[str, Any], field: str
) -> None:
    response = ask(shared, adapter, **body)
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert [error["field"] for error in response.json()["errors"]] == [field]


def test_a_text_too_long_is_cut_where_the_adapter_says_so(shared: Daemon) -> None:
    [one] = answer(shared, "cutting", input=f"{TOO_LONG} later")["predictions"]
    assert one["cut_tokens"] == 1


def test_control_bytes_emoji_and_many_characters_arrive_whole(shared: Daemon) -> None:
    odd = "".join(map(chr, range(1, 0x20))) + "\x7f\u2028\u2029\ufeff🦔\U0010ffff"
    inputs = [odd, "x" * 99_000 + "later", f'{odd}"}}\n{{"cancel": 1}}\nlater']
    found = answer(shared, inputs=inputs * 5)["predictions"]
    assert [one["label"] for one in found] == ["now", "later", "later"] * 5
    assert [one["cut_tokens"] for one in found[:3]] == [len(text) % 2 for text in inputs]


def test_only_the_scope_predict_and_only_the_own_adapters(shared: Daemon) -> None:
    with pair(shared, "asker", "predict") as app, pair(shared, "other", "status:read") as other:
        ours = app.http.post("/v1/adapters/phone/predict", json={"input": "a"})
        assert ours.status_code == 404
        assert other.http.post("/v1/adapters/phone/predict", json={"input": "a"}).status_code == 403
        assert app.http.get("/v1/models").json()["data"] == []


def test_nothing_of_it_is_kept_anywhere(own: Daemon) -> None:
    own.create_adapter("free", labels=None)
    headers = {"Idempotency-Key": "twice"}
    for _ in range(2):
        body = {"input": f"{CANARY} later"}
        response = own.http.post(own.path("/predict"), json=body, headers=headers)
        assert response.status_code == 200
        assert "idempotent-replay" not in response.headers
    assert ask(own, "free", input=CANARY).status_code == 200
    assert ask(own, input=f"{CANARY} {TOO_LONG}").status_code == 422
    chat = {"model": "free", "messages": [{"role": "user", "content": CANARY}], "stream": True}
    assert own.http.post("/v1/chat/completions", json=chat).status_code == 200
    until(lambda: (own.home / "predictor.log").read_text().count("is over") == 5)
    own.stop()
    files = [path for path in own.home.rglob("*") if path.is_file()]
    assert not [path for path in [*files, own.log_path] if CANARY.encode() in path.read_bytes()]
    with sqlite3.connect(own.home / "lorad.db") as database:
        [kept] = database.execute("SELECT count(*) FROM idempotency_records").fetchone()
    assert kept == 0


def test_the_models_list_serves_openais_clients_and_ours(shared: Daemon) -> None:
    found = shared.http.get("/v1/models").json()
    assert found["object"] == "list"
    assert [model["name"] for model in found["models"]] == ["tiny"]
    [phone] = [one for one in found["data"] if one["id"] == "phone"]
    assert phone["object"] == "model"
    assert phone["owned_by"] == "owner"
    created = datetime.fromisoformat(shared.adapter("phone")["created_at"])
    assert phone["created"] == int(created.timestamp())
