"""What a worker keeps of examples goes with them: the daemon's half, on files put there by hand."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemon import Daemon, add_stand_in_model, holding, until
from tests.service.test_erasures import delete, until_done

KEPT = "2-0123456789abcdef01234567"


def changed_at(daemon: Daemon) -> dict[int, int]:
    connection = sqlite3.connect(f"file:{daemon.home / 'lorad.db'}?mode=ro", uri=True)
    found = dict(connection.execute("SELECT id, changed_at FROM examples"))
    connection.close()
    return found


def keep(daemon: Daemon, *ids: int, adapter: int = 1) -> Path:
    """Files as a worker leaves them, one of them half-written."""
    folder = daemon.home / f"adapters/{adapter}/prefix" / KEPT
    folder.mkdir(parents=True, exist_ok=True)
    times = changed_at(daemon)
    for one in ids:
        (folder / f"{one}-{times[one]}.rows").write_bytes(b"rows")
    return folder


def examples_in(folder: Path) -> set[int]:
    return {int(path.name.partition("-")[0]) for path in folder.iterdir()}


@pytest.fixture
def own(daemon: Daemon) -> Daemon:
    daemon.create_adapter(labels=None, top_layers=2)
    return daemon


def post(daemon: Daemon, text: str, external_id: str) -> int:
    body = {"input": text, "label": "now", "split": "train", "external_id": external_id}
    response = daemon.http.post(daemon.path("/examples"), json=body)
    assert response.status_code == 201, response.text
    example_id: int = response.json()["examples"][0]["id"]
    return example_id


def test_top_layers_are_shown_and_frozen_into_the_spec(own: Daemon) -> None:
    own.post_examples(train=2, holdout=2)
    assert own.adapter()["top_layers"] == 2
    spec = own.spec(own.train())
    assert (spec["top_layers"], spec["prefix_cache_mb"]) == (2, 256)
    assert own.create_adapter("other")["top_layers"] is None


def test_the_bound_is_a_setting(tmp_path: Path) -> None:
    add_stand_in_model(tmp_path / "home")
    with Daemon(tmp_path / "home", environment={"LORAD_PREFIX_CACHE_MB": "7"}) as daemon:
        daemon.create_adapter(top_layers=1)
        daemon.post_examples(train=2, holdout=2)
        assert daemon.spec(daemon.train())["prefix_cache_mb"] == 7


def test_rows_of_a_deleted_example_are_gone_when_it_is_erased(own: Daemon) -> None:
    ids = own.post_examples(train=4, holdout=0)
    folder = keep(own, *ids)
    (folder / f".{ids[3]}-9.rows").write_bytes(b"ro")
    until_done(own, delete(own, f"/examples/{ids[0]}")["erasure"])
    assert examples_in(folder) == set(ids[1:])
    until_done(own, delete(own, "/examples?all=true")["erasure"])
    assert examples_in(folder) == set()


def test_while_a_worker_writes_it_is_pending(own: Daemon) -> None:
    [one] = own.post_examples(train=1, holdout=0)
    folder = keep(own, one)
    with holding(folder.parent / "lock"):
        answer = delete(own, f"/examples/{one}")
        time.sleep(1.5)
        told = own.http.get(f"/v1/erasures/{answer['erasure']}").json()
        assert (answer["erased"], told["erased"]) == ("pending", "pending")
        assert examples_in(folder) == {one}
    until_done(own, answer["erasure"])
    assert examples_in(folder) == set()


def test_rows_of_a_replaced_text_go_with_it(own: Daemon) -> None:
    one, other = post(own, "old", "a"), post(own, "another", "b")
    folder = keep(own, one, other)
    post(own, "new", "a")
    delete(own, f"/examples/{other}")  # any attempt takes all that is pending with it
    until(lambda: examples_in(folder) == set())
    keep(own, one)
    post(own, "new", "a")  # the same again: nothing is replaced
    until_done(own, delete(own, "/examples?all=true")["erasure"])
    assert examples_in(folder) == set()


def test_rows_of_what_expires_go_with_it(own: Daemon) -> None:
    ids = own.post_examples(train=3, holdout=0)
    folder = keep(own, *ids)
    response = own.http.patch(
        own.path(), json={"retention": {"max_examples": 1}}, headers={"If-Match": '"1"'}
    )
    assert response.status_code == 200, response.text
    until(lambda: examples_in(folder) == {ids[2]})


def test_one_clients_deletion_leaves_anothers_rows_and_a_deleted_adapter_none(own: Daemon) -> None:
    own.create_adapter("second", top_layers=2)
    first = own.post_examples(train=2, holdout=0)
    second = own.post_examples("second", train=2, holdout=0)
    folders = keep(own, *first), keep(own, *second, adapter=2)
    answer = own.http.delete("/v1/adapters/phone").json()
    until_done(own, answer["erasure"])
    assert not folders[0].parents[1].exists()
    assert examples_in(folders[1]) == set(second)


@pytest.mark.parametrize("change", ["gone", "another", "the same"])
def test_rows_of_a_base_model_that_is_gone_go_at_the_next_start(own: Daemon, change: str) -> None:
    [one] = own.post_examples(train=1, holdout=0)
    folder = keep(own, one)
    own.stop()
    if change == "gone":
        (own.home / "models/tiny/manifest.json").unlink()
    elif change == "another":
        add_stand_in_model(own.home, base_hash="sha256:another")
    own.start()
    if change == "the same":
        time.sleep(1)
        assert examples_in(folder) == {one}
    else:
        until(lambda: not folder.exists())


def test_more_layers_than_the_model_has_are_refused_by_their_number(own: Daemon) -> None:
    body: dict[str, Any] = {"name": "deep", "base_model": "tiny", "top_layers": 5}
    response = own.http.post("/v1/adapters", json=body)
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["field"] == "body.top_layers"
    assert "at most 4, the layers of tiny" in error["message"]
    assert own.http.post("/v1/adapters", json=body | {"top_layers": 4}).status_code == 201
