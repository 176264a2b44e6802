"""Deletions over HTTP, from one example to a whole client."""

import itertools
import time
from typing import Any

import pytest

from tests.service.apps import pair
from tests.service.daemon import Daemon, until

_numbers = itertools.count(1)


@pytest.fixture
def phone(shared: Daemon) -> Daemon:
    """The module's daemon with a fresh adapter."""
    shared.name = f"adapter-{next(_numbers)}"
    shared.script()
    shared.create_adapter()
    return shared


def delete(daemon: Daemon, rest: str, **more: Any) -> dict[str, Any]:
    response = daemon.http.request("DELETE", daemon.path(rest), **more)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def until_erased(daemon: Daemon, answer: dict[str, Any]) -> None:
    """It is done at once, or on a busy machine soon."""
    deadline = time.monotonic() + 20
    while daemon.http.get(f"/v1/erasures/{answer['erasure']}").json()["erased"] != "done":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kept(daemon: Daemon) -> list[int]:
    rows = daemon.http.get(daemon.path("/examples")).json()["examples"]
    return [row["id"] for row in rows]


def test_one_example_by_id(phone: Daemon) -> None:
    first, second, third = phone.post_examples(train=3, holdout=0)
    answer = delete(phone, f"/examples/{second}")
    until_erased(phone, answer)
    erasure = answer.pop("erasure")
    assert answer.pop("erased") in ("done", "pending")
    assert answer == {
        "deleted": 1,
        "versions": [],
        "run": None,
        "retrain": f"POST {phone.path('/runs')}",
        "restart": None,
    }
    assert kept(phone) == [first, third]
    told = phone.http.get(f"/v1/erasures/{erasure}").json()
    assert (told["what"], told["examples"], told["erased"]) == ("examples", 1, "done")
    assert told["requested_at"] <= told["erased_at"]
    again = phone.http.delete(phone.path(f"/examples/{second}"))
    assert again.status_code == 404


def test_on_a_quiet_phone_the_answer_says_done(phone: Daemon) -> None:
    ids = phone.post_examples(train=40, holdout=0)
    for one in ids:
        if delete(phone, f"/examples/{one}")["erased"] == "done":
            return
        time.sleep(0.5)
    pytest.fail("it never does")


def test_by_external_id_and_all(phone: Daemon) -> None:
    for name in ("a", "b", "ö/?&"):
        body = {"input": name, "label": "now", "external_id": name}
        assert phone.http.post(phone.path("/examples"), json=body).status_code == 201
    assert delete(phone, "/examples", params={"external_id": "ö/?&"})["deleted"] == 1
    assert len(kept(phone)) == 2
    missing = phone.http.delete(phone.path("/examples"), params={"external_id": "ö/?&"})
    assert missing.status_code == 404
    assert delete(phone, "/examples", params={"all": "true"})["deleted"] == 2
    assert kept(phone) == []
    assert delete(phone, "/examples", params={"all": "true"})["deleted"] == 0


@pytest.mark.parametrize(
    "query", ["", "all=false", "all=true&external_id=a", "all=maybe", "external_id="]
)
def test_exactly_one_of_the_two_ways(phone: Daemon, query: str) -> None:
    phone.post_examples(train=2, holdout=0)
    response = phone.http.delete(f"{phone.path('/examples')}?{query}")
    assert response.status_code == 422
    assert len(kept(phone)) == 2


def test_another_adapters_example_is_not_found(phone: Daemon) -> None:
    [other] = phone.post_examples("phone", train=1, holdout=0)
    unknown = phone.http.delete(phone.path("/examples/999999"))
    response = phone.http.delete(phone.path(f"/examples/{other}"))
    assert response.status_code == unknown.status_code == 404
    assert response.json() == unknown.json()


def test_the_versions_that_saw_it_are_named_and_count_it(phone: Daemon) -> None:
    train = phone.post_examples(train=2, holdout=2)
    phone.wait_until_ended(phone.train())
    [late] = phone.post_examples(train=1, holdout=0)
    phone.wait_until_ended(phone.train())
    assert delete(phone, f"/examples/{late}")["versions"] == [2]
    assert delete(phone, f"/examples/{train[0]}")["versions"] == [1, 2]
    assert delete(phone, f"/examples/{train[3]}")["versions"] == [1, 2]  # a holdout example
    seen = {
        version["number"]: version["seen_deleted"]
        for version in phone.http.get(phone.path("/versions")).json()["versions"]
    }
    assert seen == {1: 2, 2: 3}


def test_a_version_goes_with_its_folder_and_its_number_is_not_given_again(phone: Daemon) -> None:
    phone.post_examples()
    run_id = phone.train()
    phone.wait_until_ended(run_id)
    [folder] = phone.home.glob(f"adapters/*/versions/run-{run_id:08d}")
    refused = phone.http.delete(phone.path("/versions/1"))
    assert refused.status_code == 409
    assert "version 1 is active" in refused.json()["detail"]
    assert phone.http.post(phone.path("/versions/1/deactivate")).status_code == 200
    answer = delete(phone, "/versions/1")
    assert answer["deleted"] == 0
    until_erased(phone, answer)
    assert not folder.exists()
    assert phone.adapter()["active_version"] is None
    assert phone.http.get(phone.path("/versions/1")).status_code == 404
    assert phone.http.delete(phone.path("/versions/1")).status_code == 404
    assert phone.run(run_id)["version"] is None
    assert phone.wait_until_ended(phone.train())["version"] == 2  # a number is never given twice
    assert phone.adapter()["active_version"]["number"] == 2


def test_the_version_a_run_is_measured_against_waits_for_its_end(phone: Daemon) -> None:
    phone.post_examples()
    phone.wait_until_ended(phone.train())
    phone.script(steps=400, step_seconds=0.05)
    run_id = phone.train()
    assert phone.http.post(phone.path("/versions/1/deactivate")).status_code == 200
    response = phone.http.delete(phone.path("/versions/1"))
    assert response.status_code == 409
    assert f"run {run_id} " in response.json()["detail"]
    assert phone.http.post(f"/v1/runs/{run_id}/cancel").status_code in (200, 202)
    phone.wait_until_ended(run_id)
    delete(phone, "/versions/1")


def test_an_adapter_goes_with_all_that_is_its_own(phone: Daemon) -> None:
    phone.post_examples(train=5, holdout=3)
    done = phone.train()
    phone.wait_until_ended(done)
    adapter_id = int(next(phone.home.glob(f"adapters/*/versions/run-{done:08d}")).parts[-3])
    phone.script(steps=400, step_seconds=0.05, deaf=True)
    running = phone.train()
    phone.wait_for(running, lambda run: run["step"] >= 1)
    answer = delete(phone, "")
    assert answer["deleted"] == 8
    until_erased(phone, answer)
    assert phone.worker_pids() == set()
    for path in (phone.path(), f"/v1/runs/{done}", f"/v1/runs/{running}"):
        assert phone.http.get(path).status_code == 404
    for folder in (f"adapters/{adapter_id}", f"runs/{done}", f"runs/{running}"):
        assert not (phone.home / folder).exists()
    entries = phone.http.get("/v1/history", params={"limit": 5}).json()
    assert any("an adapter and its 8 examples" in str(entry) for entry in entries["entries"])
    assert phone.name not in str(phone.http.get("/v1/history", params={"limit": 200}).json())
    phone.script()
    phone.create_adapter()  # the name is free
    assert kept(phone) == []
    phone.post_examples()
    phone.wait_until_ended(phone.train())


def test_a_queued_run_of_a_deleted_adapter_is_never_begun(phone: Daemon) -> None:
    phone.post_examples()
    other = f"{phone.name}-busy"
    phone.create_adapter(other)
    phone.post_examples(other)
    phone.script(steps=60, step_seconds=0.05)
    busy = phone.train(other)
    phone.wait_for(busy, lambda run: run["step"] >= 1)
    queued = phone.train()
    until_erased(phone, delete(phone, ""))
    assert phone.wait_until_ended(busy)["status"] == "completed"
    assert phone.http.get(f"/v1/runs/{queued}").status_code == 404
    assert not (phone.home / f"runs/{queued}").exists()


def test_a_run_in_flight_is_told_and_goes_on(phone: Daemon) -> None:
    ids = phone.post_examples()
    phone.script(steps=40, step_seconds=0.05)
    run_id = phone.train()
    phone.wait_for(run_id, lambda run: run["step"] >= 1)
    answer = delete(phone, f"/examples/{ids[0]}")
    assert answer["run"] == run_id
    assert answer["restart"] == f"POST /v1/runs/{run_id}/restart"
    assert answer["versions"] == []
    ended = phone.wait_until_ended(run_id)
    assert ended["status"] == "completed"
    assert phone.adapter()["examples"]["used"] == 9


def test_a_run_in_flight_is_told_of_corrections_but_not_of_new_examples(phone: Daemon) -> None:
    example = {"input": "first text", "label": "now", "split": "train", "external_id": "mine"}
    phone.http.post(phone.path("/examples"), json=example)
    phone.post_examples()
    phone.script(steps=10_000, step_seconds=0.05)
    run_id = phone.train()
    phone.wait_for(run_id, lambda run: run["step"] >= 1)
    phone.http.post(phone.path("/examples"), json={"input": "another", "label": "now"})
    phone.http.post(phone.path("/examples"), json=example)  # nothing new in it
    after = phone.run(run_id)["step"] + 2
    phone.wait_for(run_id, lambda run: run["step"] >= after)
    log = phone.home / f"runs/{run_id}/worker.log"
    assert log.read_text().count("looked") == 1  # at its start
    phone.http.post(phone.path("/examples"), json=example | {"input": "second text"})
    until(lambda: log.read_text().count("looked") == 2)
    after = phone.run(run_id)["step"] + 2
    phone.wait_for(run_id, lambda run: run["step"] >= after)
    assert phone.steer(run_id, "cancel").status_code == 202
    assert phone.wait_until_ended(run_id)["status"] == "cancelled"
    assert log.read_text().count("looked") == 2


def test_the_same_key_deletes_once_and_answers_the_same(phone: Daemon) -> None:
    first, second = phone.post_examples(train=2, holdout=0)
    headers = {"Idempotency-Key": f"key-{phone.name}"}
    path = phone.path(f"/examples/{first}")
    answers = [phone.http.delete(path, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert "Idempotent-Replay" not in answers[0].headers
    assert answers[1].headers["Idempotent-Replay"] == "true"
    other = phone.http.delete(phone.path(f"/examples/{second}"), headers=headers)
    assert other.status_code == 409
    headers = {"Idempotency-Key": f"adapter-{phone.name}"}
    answers = [phone.http.delete(phone.path(), headers=headers) for _ in range(2)]
    assert answers[0].content == answers[1].content


def test_a_deletion_leaves_no_hash_of_what_was_posted(phone: Daemon) -> None:
    """The same key replays its answer without the body being compared, for it can't be."""
    headers = {"Idempotency-Key": f"post-{phone.name}"}
    body = {"input": "a text", "label": "now"}
    posted = phone.http.post(phone.path("/examples"), json=body, headers=headers)
    [example] = posted.json()["examples"]
    changed = phone.http.post(phone.path("/examples"), json=body | {"input": "b"}, headers=headers)
    assert changed.status_code == 409
    delete(phone, f"/examples/{example['id']}")
    again = phone.http.post(phone.path("/examples"), json=body | {"input": "b"}, headers=headers)
    assert (again.status_code, again.json()) == (201, posted.json())
    assert again.headers["Idempotent-Replay"] == "true"
    assert kept(phone) == []


def test_a_client_goes_with_all_that_is_its_own(phone: Daemon) -> None:
    name = f"app-{phone.name}"
    with pair(phone, name) as paired:
        app = paired.http
        body = {"name": "theirs", "base_model": "tiny", "labels": ["now", "later"]}
        assert app.post("/v1/adapters", json=body).status_code == 201
        batch = {"examples": [{"input": f"{n}", "label": "now"} for n in range(20)]}
        assert app.post("/v1/adapters/theirs/examples", json=batch).status_code == 201
        phone.script(steps=400, step_seconds=0.05)
        run_id = app.post("/v1/adapters/theirs/runs", json={}).json()["id"]
        one = app.delete("/v1/adapters/theirs/examples", params={"all": "false"})
        assert one.status_code == 422
        forbidden = app.delete("/v1/clients/owner")
        assert forbidden.status_code == 403
        response = phone.http.delete(f"/v1/clients/{name}")
        assert response.status_code == 200, response.text
        assert response.json()["deleted"] == 20
        until_erased(phone, response.json())
        assert app.get("/v1/adapters").status_code == 401
    assert phone.worker_pids() == set()
    assert not (phone.home / f"runs/{run_id}").exists()
    assert phone.http.delete(f"/v1/clients/{name}").status_code == 404
    assert phone.http.get("/v1/adapters", params={"client": name}).status_code == 404
    listed = phone.http.get("/v1/clients", params={"limit": 200}).json()["clients"]
    assert name not in {client["name"] for client in listed}
    told = phone.http.get(f"/v1/erasures/{response.json()['erasure']}").json()
    assert (told["what"], told["erased"]) == ("client", "done")
    with pair(phone, name) as paired:  # the name is free, and nothing came with it
        assert paired.http.get("/v1/adapters").json()["adapters"] == []


def test_the_owner_stays(phone: Daemon) -> None:
    response = phone.http.delete("/v1/clients/owner")
    assert response.status_code == 409
    assert "can't be deleted" in response.json()["detail"]
    assert phone.http.get(phone.path()).status_code == 200


def test_an_erasure_is_its_clients_own(phone: Daemon) -> None:
    [example] = phone.post_examples(train=1, holdout=0)
    erasure = delete(phone, f"/examples/{example}")["erasure"]
    with pair(phone, f"app-{phone.name}") as paired:
        app = paired.http
        theirs = app.get(f"/v1/erasures/{erasure}")
        unknown = app.get("/v1/erasures/999999")
        assert theirs.status_code == unknown.status_code == 404
        assert theirs.json() == unknown.json()
        app.post("/v1/adapters", json={"name": "a", "base_model": "tiny", "labels": None})
        mine = app.delete("/v1/adapters/a").json()["erasure"]
        assert app.get(f"/v1/erasures/{mine}").status_code == 200
    assert phone.http.get(f"/v1/erasures/{mine}").status_code == 200  # an admin sees everybody's
