"""A client sees nothing of another's: not its things, and not whether they exist.

The operations come from the OpenAPI document, so that a new one can't be forgotten: where it
takes a body, `operations` has to say what a valid one looks like.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.service.apps import App, pair
from tests.service.daemon import Daemon, add_stand_in_model
from tests.service.operations import LABEL, Operation, every

THEIR_NAME, THEIR_ADAPTER, THEIR_ID = "secret-diary-app", "hidden-diary", "their-external-id"
THEIR_TEXT, THEIR_LABEL = "dear diary, nobody may know", LABEL


@dataclass
class Two:
    """A daemon with two clients, who both have an adapter with a version."""

    daemon: Daemon
    they: App
    we: App
    theirs: dict[str, Any]
    """What names the others' things, by the place in a path that it belongs to."""

    nobodys: dict[str, Any]
    """What names nothing."""

    ours: dict[str, Any]

    def their_state(self) -> list[str]:
        """All that the others can see of their own."""
        answers = []
        for operation in every(self.daemon):
            if operation.method == "GET" and operation.scopes and "admin" not in operation.scopes:
                if operation.path in ("/v1/runs/{run_id}/events", "/v1/device", "/metrics"):
                    continue  # the one is a stream, the others tell how full the disk is
                answers.append(f"{operation} {operation.send(self.they.http, self.theirs)}")
        return answers


def fill(app: App, adapter: str, text: str, label: str, external_id: str) -> dict[str, Any]:
    """An adapter with examples and a version."""
    http = app.http
    new = {"name": adapter, "base_model": "tiny", "labels": [label, "other"]}
    assert http.post("/v1/adapters", json=new).status_code == 201
    batch = [
        {"input": f"{text} {number}", "label": label, "split": split}
        for split, count in (("train", 5), ("holdout", 30))
        for number in range(count * (split == "holdout"), count * (split == "holdout") + count)
    ]
    batch[0]["external_id"] = external_id
    posted = http.post(f"/v1/adapters/{adapter}/examples", json={"examples": batch})
    assert posted.status_code == 201, posted.text
    run = http.post(f"/v1/adapters/{adapter}/runs", json={})
    assert run.status_code == 202, run.text
    wait_until(app, run.json()["id"], "status", "completed")
    ids = [example["id"] for example in posted.json()["examples"]]
    deleted = http.delete(f"/v1/adapters/{adapter}/examples/{ids[-1]}")
    assert deleted.status_code == 200, deleted.text
    return {
        "name": adapter,
        "run_id": run.json()["id"],
        "example_id": ids[0],
        "number": 1,
        "erasure_id": deleted.json()["erasure"],
    }


def wait_until(app: App, run_id: int, field: str, value: str) -> None:
    deadline = time.monotonic() + 30
    while (run := app.http.get(f"/v1/runs/{run_id}").json())[field] != value:
        assert time.monotonic() < deadline, (run, app.daemon.log())
        time.sleep(0.05)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    home: Path = tmp_path_factory.mktemp("two") / "home"
    add_stand_in_model(home)
    with Daemon(home) as daemon:
        daemon.script(steps=3, step_seconds=0.01, holdout=30)
        with pair(daemon, THEIR_NAME) as they, pair(daemon, "mail") as we:
            theirs = fill(they, THEIR_ADAPTER, THEIR_TEXT, THEIR_LABEL, THEIR_ID)
            ours = fill(we, "mine", "hello", "now", "our-external-id")
            nobodys = {
                "name": "no-such-thing",
                "run_id": 424242,
                "number": 424242,
                "example_id": 424242,
                "erasure_id": 424242,
            }
            yield Two(daemon, they, we, theirs, nobodys, ours)


def test_anothers_things_are_as_if_they_did_not_exist(two: Two) -> None:
    before = two.their_state()
    seen = 0
    for operation in every(two.daemon):
        if not operation.places:
            continue
        for places in mixtures(operation, two):
            theirs = operation.send(two.we.http, two.ours | places, **operation.valid())
            absent = {name: two.nobodys[name] for name in places}
            nobodys = operation.send(two.we.http, two.ours | absent, **operation.valid())
            assert theirs == nobodys, str(operation)
            expected = 403 if operation.scopes == ("admin",) else 404
            assert theirs[0] == expected, (str(operation), theirs[1])
            seen += 1
    assert seen > 10
    assert two.their_state() == before


def mixtures(operation: Operation, two: Two) -> Iterator[dict[str, Any]]:
    """All places the others'; and within our own adapter, what only they have."""
    yield {name: two.theirs[name] for name in operation.places}
    if operation.path.startswith("/v1/clients/") or "pairing-codes" in operation.path:
        yield {"name": THEIR_NAME}
    for name in ("example_id",):
        if name in operation.places and len(operation.places) > 1:
            yield {name: two.theirs[name]}


def test_no_answer_names_anything_of_anothers(two: Two) -> None:
    for operation in every(two.daemon):
        if operation.method != "GET" or operation.scopes is None:
            continue
        status, text = operation.send(two.we.http, two.ours)
        assert status in (200, 403, 404), (str(operation), text)
        for canary in (THEIR_NAME, THEIR_ADAPTER, THEIR_TEXT, THEIR_LABEL, THEIR_ID):
            assert canary not in text, str(operation)
    assert THEIR_ADAPTER in two.they.http.get("/v1/adapters").text  # they would be seen


def test_filters_find_nothing_of_anothers(two: Two) -> None:
    words = {"external_id": THEIR_ID, "adapter": THEIR_ADAPTER}
    for operation in every(two.daemon):
        for query, word in words.items():
            if operation.method == "GET" and query in operation.queries:
                found = operation.send(two.we.http, two.ours, params={query: word})
                nothing = operation.send(two.we.http, two.ours, params={query: "nothing"})
                assert found == nothing, str(operation)
                assert found[0] in (200, 403), found


def test_a_cursor_of_anothers_list_shows_our_own_things_only(two: Two) -> None:
    path = f"/v1/adapters/{THEIR_ADAPTER}/examples"
    cursor = two.they.http.get(path, params={"limit": 1}).json()["next"]
    page = two.we.http.get("/v1/adapters/mine/examples", params={"cursor": cursor})
    assert THEIR_TEXT not in page.text
    assert len(page.json()["examples"]) == 34


def test_acting_for_another_is_for_admins(two: Two) -> None:
    for operation in every(two.daemon):
        if "client" not in operation.queries:
            continue
        answers = []
        for name in (THEIR_NAME, "nobody"):
            asked = operation.valid()
            asked["params"] = asked["params"] | {"client": name}
            answers.append(operation.send(two.we.http, two.ours, **asked))
        assert answers[0] == answers[1], str(operation)
        assert answers[0][0] == 403, str(operation)


def test_names_and_keys_are_each_clients_own(two: Two) -> None:
    """Neither a name nor an Idempotency-Key that another uses is taken."""
    new = {"name": THEIR_ADAPTER, "base_model": "tiny", "labels": ["a", "b"]}
    headers = {"Idempotency-Key": "the same"}
    theirs = two.they.http.post(
        "/v1/adapters", json=new | {"name": "second-diary"}, headers=headers
    )
    assert theirs.status_code == 201
    ours = two.we.http.post("/v1/adapters", json=new, headers=headers)
    assert ours.status_code == 201, ours.text
    assert two.we.http.get(f"/v1/adapters/{THEIR_ADAPTER}").json()["labels"] == ["a", "b"]
    theirs_now = two.they.http.get(f"/v1/adapters/{THEIR_ADAPTER}").json()
    assert theirs_now["labels"] == [THEIR_LABEL, "other"]
    example = {"input": "x", "label": "a", "external_id": THEIR_ID, "split": "train"}
    posted = two.we.http.post(f"/v1/adapters/{THEIR_ADAPTER}/examples", json=example)
    assert posted.json()["examples"][0]["id"] > two.theirs["example_id"]
    assert two.they.http.get(f"/v1/adapters/{THEIR_ADAPTER}").json() == theirs_now


def test_who_waits_for_another_is_not_told_for_whom(two: Two) -> None:
    """Last of the module: it leaves a run of each."""
    two.daemon.script(steps=2000, step_seconds=0.05)
    running = two.they.http.post(f"/v1/adapters/{THEIR_ADAPTER}/runs", json={}).json()["id"]
    wait_until(two.they, running, "phase", "training")
    waiting = two.we.http.post("/v1/adapters/mine/runs", json={})
    assert waiting.status_code == 202, waiting.text
    texts = [waiting.text]
    for operation in every(two.daemon):
        places = two.ours | {"run_id": waiting.json()["id"]}
        if operation.method == "GET" and not operation.path.endswith("/events"):
            texts.append(operation.send(two.we.http, places)[1])
    reason = two.we.http.get("/v1/adapters/mine").json()["not_training_because"]
    assert "another" in reason
    assert str(running) not in reason.replace(str(waiting.json()["id"]), "")
    said = json.dumps(texts)
    for canary in (THEIR_NAME, THEIR_TEXT, "dear diary", THEIR_LABEL):
        assert canary not in said
    assert f"run {running} " not in said
