"""What a client may send and keep, enforced where examples come in."""

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.service.apps import App, pair
from tests.service.daemon import Daemon

FREE: dict[str, Any] = {"examples_per_day": None, "most_bytes": None, "most_pending": None}


def app_with(daemon: Daemon, name: str, **quotas: int) -> App:
    app = pair(daemon, name, quotas=FREE | quotas)
    body = {"name": "mine", "base_model": "tiny", "labels": ["now", "later"]}
    assert app.http.post("/v1/adapters", json=body).status_code == 201
    return app


def post(app: App, *inputs: str, split: str = "train", **fields: Any) -> httpx.Response:
    batch = [{"input": text, "label": "now", "split": split} | fields for text in inputs]
    return app.http.post("/v1/adapters/mine/examples", json={"examples": batch})


def usage(app: App) -> dict[str, int]:
    answer: dict[str, int] = app.http.get("/v1/client").json()["usage"]
    return answer


def refused(response: httpx.Response, quota: str, limit: int, found: int) -> int:
    assert response.status_code == 429, response.text
    assert response.headers["content-type"] == "application/problem+json"
    detail = response.json()["detail"]
    for word in (quota, str(limit), str(found)):
        assert word in detail
    return int(response.headers["retry-after"])


def test_examples_a_day(shared: Daemon) -> None:
    with app_with(shared, "daily", examples_per_day=5) as app:
        assert post(app, "a", "b", "c").status_code == 201
        retry = refused(post(app, "d", "e", "f"), "examples_per_day", 5, 6)
        to_midnight = 86_400 - time.time() % 86_400
        assert abs(retry - to_midnight) < 5
        assert usage(app) == {"examples_today": 3, "bytes": 12, "pending": 3}
        assert post(app, "d", "e").status_code == 201  # what was refused wasn't counted
        refused(post(app, "a", split="train"), "examples_per_day", 5, 6)


def test_bytes_kept(shared: Daemon) -> None:
    with app_with(shared, "sized", most_bytes=100) as app:
        assert post(app, "é" * 40, external_id="x").status_code == 201  # 80 + 3
        assert refused(post(app, "y" * 15), "most_bytes", 100, 101) == 3600
        assert post(app, "y" * 14).status_code == 201
        assert post(app, "z", external_id="x").status_code == 201  # a shorter correction
        assert usage(app)["bytes"] == 14 + 3 + 1 + 3
        assert post(app, "z" * 76, external_id="x").status_code == 201
        refused(post(app, "z" * 81, external_id="x"), "most_bytes", 100, 101)


def test_what_waits_for_a_training(shared: Daemon) -> None:
    with app_with(shared, "waiting", most_pending=3) as app:
        assert post(app, "a", "b", split="holdout").status_code == 201  # these never wait
        assert post(app, "c", "d", "e").status_code == 201
        assert refused(post(app, "f"), "most_pending", 3, 4) == 3600
        assert post(app, "g", split="holdout").status_code == 201
        run_id = app.http.post("/v1/adapters/mine/runs", json={}).json()["id"]
        deadline = time.monotonic() + 30
        while app.http.get(f"/v1/runs/{run_id}").json()["status"] != "completed":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert usage(app)["pending"] == 0
        assert post(app, "f", "h", "i").status_code == 201


def test_a_correction_that_waits_already_does_not_wait_twice(shared: Daemon) -> None:
    with app_with(shared, "correcting", most_pending=1) as app:
        assert post(app, "a", external_id="x").status_code == 201
        assert post(app, "b", external_id="x").status_code == 201
        assert post(app, "b", external_id="x").status_code == 201
        refused(post(app, "c", external_id="y"), "most_pending", 1, 2)


def test_a_quota_counts_over_all_adapters_and_no_other_client(shared: Daemon) -> None:
    with app_with(shared, "one", most_pending=2) as one, app_with(shared, "two") as two:
        body = {"name": "other", "base_model": "tiny", "labels": None}
        assert one.http.post("/v1/adapters", json=body).status_code == 201
        assert post(two, *"abcdef").status_code == 201
        assert post(one, "a").status_code == 201
        example = {"input": "a", "label": "x", "split": "train"}
        path = "/v1/adapters/other/examples"
        assert one.http.post(path, json=example).status_code == 201
        refused(one.http.post(path, json=example | {"input": "b"}), "most_pending", 2, 3)


def test_a_request_sent_again_under_its_key_is_charged_once(shared: Daemon) -> None:
    with app_with(shared, "keyed", examples_per_day=1) as app:
        body = {"input": "a", "label": "now"}
        headers = {"Idempotency-Key": "k"}
        for _ in range(3):
            response = app.http.post("/v1/adapters/mine/examples", json=body, headers=headers)
            assert response.status_code == 201
        refused(post(app, "b"), "examples_per_day", 1, 2)


def test_lines_are_charged_too(shared: Daemon) -> None:
    with app_with(shared, "lined", examples_per_day=2) as app:
        response = app.http.post(
            "/v1/adapters/mine/examples",
            content=b'{"input": "a", "label": "now"}\n' * 3,
            headers={"Content-Type": "application/x-ndjson"},
        )
        refused(response, "examples_per_day", 2, 3)


@pytest.mark.parametrize("quota", ["examples_per_day", "most_pending"])
def test_forty_at_once_don_t_pass_a_quota_together(daemon: Daemon, quota: str) -> None:
    with app_with(daemon, "racing", **{quota: 10}) as app:
        gate = threading.Barrier(40)

        def one(number: int) -> int:
            with httpx.Client(
                base_url=app.http.base_url, headers=app.http.headers, timeout=60, trust_env=False
            ) as client:
                gate.wait()
                body = {"input": f"text {number}", "label": "now", "split": "train"}
                return client.post("/v1/adapters/mine/examples", json=body).status_code

        with ThreadPoolExecutor(40) as pool:
            answers = sorted(pool.map(one, range(40)))
        assert answers == [201] * 10 + [429] * 30
        assert usage(app)["pending"] == 10


def test_the_owner_acting_for_a_client_spends_that_client_s_quota(shared: Daemon) -> None:
    with app_with(shared, "helped", examples_per_day=1) as app:
        path = "/v1/adapters/mine/examples?client=helped"
        body = {"input": "a", "label": "now"}
        assert shared.http.post(path, json=body).status_code == 201
        assert usage(app)["examples_today"] == 1
        refused(shared.http.post(path, json=body), "examples_per_day", 1, 2)


def test_an_expired_example_begins_anew_when_it_is_sent_again(daemon: Daemon) -> None:
    with app_with(daemon, "reviving") as app:
        path = "/v1/adapters/mine/examples"
        body = {"input": "old", "label": "now", "split": "holdout", "external_id": "x"}
        [first] = app.http.post(path, json=body).json()["examples"]
        daemon.stop()
        with sqlite3.connect(daemon.home / "lorad.db") as database:
            database.execute(
                "UPDATE examples SET status = 'expired', input = NULL, label = NULL, "
                "text_hash = NULL, created_at = 1000, changed_at = ?",
                [int(time.time() * 1000)],
            )
        daemon.start()
        http = httpx.Client(
            base_url=f"http://127.0.0.1:{daemon.port}", headers=app.http.headers, trust_env=False
        )
        [shell] = http.get(path).json()["examples"]
        assert (shell["input"], shell["label"], shell["status"]) == (None, None, "expired")
        assert http.get(path, params={"status": "expired"}).json()["examples"] == [shell]
        [again] = http.post(
            path, json={"input": "new", "label": "later", "external_id": "x"}
        ).json()["examples"]
        assert (again["id"], again["split"]) == (first["id"], "holdout")
        [kept] = http.get(path).json()["examples"]
        assert (kept["input"], kept["label"], kept["status"]) == ("new", "later", "pending")
        assert kept["created_at"] > "2026"
        # and its own text of before is no longer known to anybody: it may go to the other side
        response = http.post(path, json={"input": "old", "label": "now", "split": "train"})
        assert response.status_code == 201
        http.close()


def test_the_newest_are_kept_at_once(daemon: Daemon) -> None:
    with app_with(daemon, "bounded") as app:
        headers = {"If-Match": "*"}
        change = {"retention": {"max_examples": 3}}
        response = app.http.patch("/v1/adapters/mine", json=change, headers=headers)
        assert response.status_code == 200
        assert post(app, "a", "b").status_code == 201
        time.sleep(0.005)
        assert post(app, "c", "d").status_code == 201
        kept = app.http.get("/v1/adapters/mine/examples").json()["examples"]
        assert [one["input"] for one in kept] == [None, "b", "c", "d"]
        time.sleep(0.005)
        response = post(app, *"efghi")  # more than are kept: all are answered, three stay
        assert response.status_code == 201
        assert len(response.json()["examples"]) == 5
        counts = app.http.get("/v1/adapters/mine").json()["examples"]
        assert (counts["train"], counts["expired"]) == (3, 6)
        kept = app.http.get("/v1/adapters/mine/examples", params={"status": "pending"}).json()
        assert [one["input"] for one in kept["examples"]] == ["g", "h", "i"]
