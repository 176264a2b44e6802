"""One effect and one answer for a request that is sent again, over HTTP."""

import hashlib
import hmac
import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.service.apps import pair
from tests.service.daemon import Daemon, until

EXAMPLES = "/v1/adapters/phone/examples"
DAY_MS = 24 * 3600 * 1000


def post(
    daemon: Daemon, key: str, text: str = "hello", path: str = EXAMPLES, **fields: str
) -> httpx.Response:
    body = {"input": text, "label": "now"} | fields
    return daemon.http.post(path, json=body, headers={"Idempotency-Key": key})


def kept(daemon: Daemon, name: str = "phone") -> int:
    counts = daemon.adapter(name)["examples"]
    total: int = counts["train"] + counts["holdout"]
    return total


def test_the_same_again_is_the_same_answer_and_no_second_effect(shared: Daemon) -> None:
    before = kept(shared)
    first = post(shared, "same")
    again = post(shared, "same")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert "idempotent-replay" not in first.headers
    assert again.headers["idempotent-replay"] == "true"
    assert again.headers["content-type"] == first.headers["content-type"]
    assert kept(shared) == before + 1


def test_the_answer_to_a_created_adapter_is_given_again_as_it_was(shared: Daemon) -> None:
    body = {"name": "once", "base_model": "tiny", "alpha": 1e-5}
    headers = {"Idempotency-Key": "created"}
    first = shared.http.post("/v1/adapters", json=body, headers=headers)
    assert first.status_code == 201
    post(shared, "in between", path="/v1/adapters/once/examples")
    again = shared.http.post("/v1/adapters", json=body, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["location"] == first.headers["location"] == "/v1/adapters/once"
    other = shared.http.post("/v1/adapters", json=body)
    assert other.status_code == 409  # without the key it is another creation of that name


@pytest.mark.parametrize("change", ["body", "white space", "query", "path"])
def test_another_request_under_the_key_is_409(shared: Daemon, change: str) -> None:
    key = f"used for {change}"
    assert post(shared, key).status_code == 201
    before = kept(shared)
    raw = json.dumps({"input": "hello", "label": "now"})
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    if change == "body":
        response = post(shared, key, "hello ")
    elif change == "white space":
        response = shared.http.post(EXAMPLES, content=f" {raw}", headers=headers)
    elif change == "query":
        response = post(shared, key, path=f"{EXAMPLES}?client=owner")
    else:
        response = post(shared, key, path="/v1/adapters/cutting/examples")
    assert response.status_code == 409, response.text
    assert "Idempotency-Key" in response.json()["detail"]
    assert kept(shared) == before


@pytest.mark.parametrize("key", ["", "x" * 201, "é", "tab\there"])
def test_a_key_that_is_none_is_refused(shared: Daemon, key: str) -> None:
    response = shared.http.post(
        EXAMPLES,
        json={"input": "a", "label": "now"},
        headers={"Idempotency-Key": key.encode("latin-1")},  # type: ignore[dict-item]
    )
    assert response.status_code == 422
    assert [each["field"] for each in response.json()["errors"]] == ["header.Idempotency-Key"]


def test_two_keys_in_one_request_are_refused(shared: Daemon) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    response = shared.http.post(EXAMPLES, json={"input": "a", "label": "now"}, headers=headers)
    assert response.status_code == 422


def test_a_refused_request_takes_no_key(shared: Daemon) -> None:
    assert post(shared, "retried", label="never").status_code == 422
    assert post(shared, "retried").status_code == 201


def test_fifty_at_once_under_one_key_have_one_effect(shared: Daemon) -> None:
    before = kept(shared)
    gate = threading.Barrier(50)

    def one(_number: int) -> tuple[int, str]:
        with httpx.Client(
            base_url=shared.http.base_url, headers=shared.http.headers, timeout=60, trust_env=False
        ) as client:
            gate.wait()
            response = client.post(
                EXAMPLES,
                json={"input": "racing", "label": "now"},
                headers={"Idempotency-Key": "raced"},
            )
            return response.status_code, response.text

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(one, range(50)))
    assert {status for status, _ in answers} == {201}
    assert len({text for _, text in answers}) == 1
    assert kept(shared) == before + 1


def test_a_key_lives_a_day_and_through_a_sigkill(daemon: Daemon) -> None:
    daemon.create_adapter("phone")
    first = post(daemon, "lasting")
    daemon.kill()
    daemon.start()
    assert post(daemon, "lasting").json() == first.json()
    daemon.stop()
    with sqlite3.connect(daemon.home / "lorad.db") as database:
        database.execute("UPDATE idempotency_records SET created_at = created_at - ?", [DAY_MS])
    daemon.start()
    later = post(daemon, "lasting", "another text")
    assert later.status_code == 201
    assert "idempotent-replay" not in later.headers
    assert post(daemon, "lasting", "another text").json() == later.json()


def test_the_records_hold_no_text_and_no_hash_that_a_guess_would_meet(daemon: Daemon) -> None:
    daemon.create_adapter("phone")
    raw = b'{"input": "a very secret text", "label": "now"}'
    headers = {"Idempotency-Key": "private", "Content-Type": "application/json"}
    assert daemon.http.post(EXAMPLES, content=raw, headers=headers).status_code == 201
    daemon.stop()
    with sqlite3.connect(daemon.home / "lorad.db") as database:
        [(digest, answer)] = database.execute("SELECT digest, answer FROM idempotency_records")
        [(key,)] = database.execute("SELECT key FROM clients")
    assert "secret" not in answer
    guess = hashlib.sha256(f"POST {EXAMPLES}\n".encode() + raw).digest()
    assert digest != guess
    assert digest == hmac.digest(key, guess, "sha256")


def test_once_a_text_is_gone_nothing_tells_what_was_sent_but_the_answer_stays(
    shared: Daemon,
) -> None:
    """A correction replaces a text: by its digest a guess of the old one could be tested."""
    shared.create_adapter("forgetful")
    path = "/v1/adapters/forgetful/examples"
    first = post(shared, "old", "the old text", path=path, external_id="x")
    corrected = post(shared, "new", "the new text", path=path, external_id="x")
    for text in ("the old text", "any other"):
        again = post(shared, "old", text, path=path, external_id="x")
        assert (again.status_code, again.json()) == (201, first.json())
    assert shared.http.get(path).json()["examples"][0]["input"] == "the new text"
    assert post(shared, "old", "the old text", external_id="x").status_code == 409  # elsewhere
    assert post(shared, "new", "any other", path=path, external_id="x").status_code == 409
    again = post(shared, "new", "the new text", path=path, external_id="x")
    assert again.json() == corrected.json()


def test_a_deleted_client_takes_along_what_others_sent_for_it(daemon: Daemon) -> None:
    with pair(daemon, "app") as app:
        body = {"name": "mine", "base_model": "tiny", "labels": ["now", "later"]}
        headers = {"Idempotency-Key": "k"}
        assert app.http.post("/v1/adapters", json=body, headers=headers).status_code == 201
        path = "/v1/adapters/mine/examples"
        for http, query in ((app.http, ""), (daemon.http, "?client=app")):
            response = http.post(
                path + query,
                json={"input": "a", "label": "now"},
                headers={"Idempotency-Key": "examples"},
            )
            assert response.status_code == 201
            assert "idempotent-replay" not in response.headers  # keys are the sender's own
    assert daemon.http.delete("/v1/clients/app").status_code == 200
    daemon.stop()
    with sqlite3.connect(daemon.home / "lorad.db") as database:
        assert database.execute("SELECT count(*) FROM idempotency_records").fetchone() == (0,)


def test_a_deleted_adapter_may_be_created_again_under_the_same_key(shared: Daemon) -> None:
    body = {"name": "twice", "base_model": "tiny"}
    headers = {"Idempotency-Key": "created twice"}
    for _ in range(2):
        response = shared.http.post("/v1/adapters", json=body, headers=headers)
        assert response.status_code == 201
        assert "idempotent-replay" not in response.headers
        assert shared.http.delete("/v1/adapters/twice").status_code == 200


def test_whoever_repeats_everything_after_a_sigkill_has_everything_once(daemon: Daemon) -> None:
    """The record and the effect are one transaction: no text is lost, and none is kept twice."""
    daemon.create_adapter("phone", labels=None)
    port, headers = daemon.port, dict(daemon.http.headers)
    answered: dict[int, object] = {}

    def send(numbers: range) -> None:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False
        ) as client:
            for number in numbers:
                try:
                    response = client.post(
                        EXAMPLES,
                        json={"input": f"text {number}", "label": "x"},
                        headers={"Idempotency-Key": f"burst {number}"},
                    )
                except httpx.HTTPError:
                    return
                answered[number] = response.json()

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(send, range(start, 160, 8)) for start in range(8)]
        until(lambda: len(answered) >= 20)
        daemon.kill()
        for job in jobs:
            job.result()
    assert 0 < len(answered) < 160
    daemon.start()
    for number in range(160):
        again = post(daemon, f"burst {number}", f"text {number}", label="x")
        assert again.status_code == 201
        if number in answered:
            assert again.json() == answered[number]
            assert again.headers["idempotent-replay"] == "true"
    pages = daemon.pages(EXAMPLES, "examples", limit=100)
    texts = [example["input"] for page in pages for example in page]
    assert sorted(texts) == sorted(f"text {number}" for number in range(160))
