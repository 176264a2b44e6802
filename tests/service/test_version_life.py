"""Versions after their birth: activated by hand, kept up to a number, gone from the disk."""

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.service.apps import pair
from tests.service.daemon import Daemon, kill, until

GOOD = {"loss": 0.5, "label_nll": 0.4, "accuracy": 0.9}
BETTER = {"loss": 0.3, "label_nll": 0.2, "accuracy": 0.95}
WORSE = {"loss": 2.5, "label_nll": 1.9, "accuracy": 0.1}


def trained(daemon: Daemon, after: dict[str, float] = GOOD, **script: Any) -> dict[str, Any]:
    """One more version."""
    daemon.script(steps=2, step_seconds=0, after=after, **script)
    number = daemon.wait_until_ended(daemon.train())["version"]
    answer: dict[str, Any] = daemon.http.get(daemon.path(f"/versions/{number}")).json()
    return answer


def activate(daemon: Daemon, number: int, verb: str = "activate") -> dict[str, Any]:
    response = daemon.http.post(daemon.path(f"/versions/{number}/{verb}"))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def numbers(daemon: Daemon) -> list[int]:
    listed = daemon.http.get(daemon.path("/versions")).json()["versions"]
    return [version["number"] for version in listed]


def history(daemon: Daemon, kind: str) -> list[str]:
    asked = {"adapter": daemon.name, "kind": kind}
    entries = daemon.http.get("/v1/history", params=asked).json()["entries"]
    return [entry["message"] for entry in entries]


def folder(daemon: Daemon, version: dict[str, Any]) -> Path:
    [path] = daemon.home.glob(f"adapters/*/versions/run-{version['run']:08d}")
    return path


def test_activating_rolling_back_and_having_none(ready: Daemon) -> None:
    first = trained(ready)
    assert (first["verdict"], first["active"], first["activated_by"]) == ("promoted", True, None)
    assert first["activated_at"] is not None
    second = trained(ready, BETTER, active=GOOD)
    assert (second["verdict"], second["active"]) == ("promoted", True)
    worse = trained(ready, WORSE, active=BETTER)
    few = trained(ready, BETTER, active=GOOD, holdout=3)
    assert (worse["verdict"], few["verdict"]) == ("rejected", "insufficient")
    assert ready.adapter()["active_version"]["number"] == 2
    for version in (first, worse, few, second):
        answer = activate(ready, version["number"])
        assert (answer["active"], answer["activated_by"]) == (True, "owner")
        assert answer["activated_at"] > version["created_at"]
        assert answer["verdict"] == version["verdict"], "the verdict is lorad's and stays"
        assert ready.adapter()["active_version"] == answer
    assert history(ready, "version-activated") == [
        "version 2 was activated by owner in place of version 4",
        "version 4 was activated by owner in place of version 3, although it is insufficient: "
        + few["verdict_reason"],
        "version 3 was activated by owner in place of version 1, although it is rejected: "
        + worse["verdict_reason"],
        "version 1 was activated by owner in place of version 2",
    ]
    again = activate(ready, 2)
    assert again == ready.adapter()["active_version"]
    assert len(history(ready, "version-activated")) == 4, "it was active already"
    assert activate(ready, 2, "deactivate")["active"] is False
    assert ready.adapter()["active_version"] is None
    activate(ready, 2, "deactivate")
    assert history(ready, "version-deactivated") == [
        "version 2 was deactivated by owner, and none is active now"
    ]


def test_who_decides_is_told_and_who_may_not_is_refused(daemon: Daemon) -> None:
    with pair(daemon, "mail", "adapters:manage", "examples:write", "train", "status:read") as mail:
        body = {"name": "inbox", "base_model": "tiny", "labels": ["now", "later"]}
        assert mail.http.post("/v1/adapters", json=body).status_code == 201
        batch = [{"input": f"m {n}", "label": "now", "split": "train"} for n in range(3)]
        mail.http.post("/v1/adapters/inbox/examples", json={"examples": batch})
        daemon.script(steps=1, holdout=0)
        run = mail.http.post("/v1/adapters/inbox/runs", json={}).json()["id"]
        until(lambda: mail.http.get(f"/v1/runs/{run}").json()["status"] == "completed")
        path = "/v1/adapters/inbox/versions/1"
        assert mail.http.post(f"{path}/activate").json()["activated_by"] == "mail"
        assert mail.http.post(f"{path}/deactivate").status_code == 200
        by_admin = daemon.http.post(f"{path}/activate", params={"client": "mail"}).json()
        assert by_admin["activated_by"] == "owner", "the admin decided, not the app it acts for"
        assert daemon.http.post(f"{path}/activate").status_code == 404
        with pair(daemon, "reader", "status:read", "train") as reader:
            assert reader.http.post(f"{path}/activate").status_code == 403


def test_sent_twice_it_is_activated_once(ready: Daemon) -> None:
    for _ in range(2):
        trained(ready, WORSE)
    key = {"Idempotency-Key": f"activate-{ready.name}"}
    path = ready.path("/versions/1/activate")
    first = ready.http.post(path, headers=key)
    activate(ready, 2)
    again = ready.http.post(path, headers=key)
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replay"] == "true"
    assert ready.adapter()["active_version"]["number"] == 2


@pytest.mark.parametrize("what", ["all", "adapter_model.safetensors", "version.json"])
def test_gone_files_are_shown_and_not_activated(ready: Daemon, what: str) -> None:
    version = trained(ready, WORSE)
    assert version["files_gone"] is False
    path = folder(ready, version)
    if what == "all":
        shutil.rmtree(path)
    else:
        (path / what).unlink()
    [listed] = ready.http.get(ready.path("/versions")).json()["versions"]
    assert listed["files_gone"] is True
    response = ready.http.post(ready.path("/versions/1/activate"))
    assert response.status_code == 410
    assert "train again" in response.json()["detail"]
    assert ready.adapter()["active_version"] is None
    refused = ready.http.post(ready.path("/runs"), json={"warm_start": 1})
    assert refused.status_code == 409
    assert "files" in refused.json()["detail"]


def test_an_active_version_whose_files_are_gone_holds_no_better_one_up(ready: Daemon) -> None:
    lost = trained(ready)
    shutil.rmtree(folder(ready, lost))
    assert ready.adapter()["active_version"]["files_gone"] is True
    version = trained(ready, BETTER)  # the worker has nothing to measure the active one with
    assert (version["verdict"], version["active"]) == ("promoted", True)
    assert ready.spec(version["run"])["active_version"] is None
    ready.http.delete(ready.path("/versions/1")).raise_for_status()


def test_a_version_activated_while_a_run_trains_was_not_measured_against(ready: Daemon) -> None:
    """The worker measured version 1, which is worse than the one that became active meanwhile."""
    trained(ready)
    trained(ready, BETTER, active=GOOD, holdout=3)
    ready.script(steps=40, step_seconds=0.05, active=GOOD, after=GOOD | {"label_nll": 0.3})
    run_id = ready.train()
    activate(ready, 2)
    assert ready.wait_until_ended(run_id)["status"] == "completed"
    version = ready.http.get(ready.path("/versions/3")).json()
    assert version["verdict"] == "rejected"
    assert "was not measured" in version["verdict_reason"]
    assert ready.adapter()["active_version"]["number"] == 2


def test_the_base_is_checked_and_both_hashes_are_named(own: Daemon) -> None:
    trained(own, WORSE)
    with closing(sqlite3.connect(own.home / "lorad.db")) as database:
        database.execute("PRAGMA busy_timeout = 5000")
        database.execute(
            "UPDATE versions SET manifest = json_set(manifest, '$.base_hash', 'sha256:another')"
        )
        database.commit()
    for method, path, body in (
        ("POST", "/versions/1/activate", None),
        ("POST", "/runs", {"warm_start": 1}),
    ):
        response = own.http.request(method, own.path(path), json=body)
        assert response.status_code == 409
        assert "sha256:another" in response.json()["detail"]
        assert "sha256:tiny" in response.json()["detail"]


def test_an_exchanged_base_model_is_named_too(own: Daemon) -> None:
    trained(own, WORSE)
    manifest = own.home / "models/tiny/manifest.json"
    value = json.loads(manifest.read_text()) | {"base_hash": "sha256:exchanged"}
    manifest.write_text(json.dumps(value))
    response = own.http.post(own.path("/versions/1/activate"))
    assert response.status_code == 409
    assert "sha256:tiny" in response.json()["detail"]
    assert "sha256:exchanged" in response.json()["detail"]


def test_the_newest_are_kept_and_the_active_one(own: Daemon) -> None:
    own.http.patch(
        own.path(), json={"retention": {"keep_versions": 2}}, headers={"If-Match": "*"}
    ).raise_for_status()
    first = trained(own)
    for _ in range(3):
        trained(own, WORSE, active=GOOD)
    assert numbers(own) == [4, 3, 1]
    assert folder(own, first).is_dir()
    assert history(own, "version-deleted") == ["version 2 was deleted: only the newest 2 are kept"]
    own.http.patch(
        own.path(), json={"retention": {"keep_versions": 1}}, headers={"If-Match": "*"}
    ).raise_for_status()
    assert numbers(own) == [4, 1]
    until(lambda: len(list(own.home.glob("adapters/*/versions/run-*"))) == 2)
    activate(own, 4)
    assert trained(own, WORSE, active=WORSE)["number"] == 5
    assert numbers(own) == [5, 4]


def test_a_version_that_a_run_began_with_stays(ready: Daemon) -> None:
    for _ in range(3):
        trained(ready, WORSE)
    ready.script(steps=1000, step_seconds=0.05)
    run_id = ready.train(warm_start=1)
    assert ready.run(run_id)["warm_start"] == 1
    assert ready.spec(run_id)["warm_start"]["version"] == 1
    assert (ready.home / ready.spec(run_id)["warm_start"]["path"] / "version.json").exists()
    refused = ready.http.delete(ready.path("/versions/1"))
    assert refused.status_code == 409
    assert f"run {run_id} began with this version" in refused.json()["detail"]
    ready.http.patch(
        ready.path(), json={"retention": {"keep_versions": 1}}, headers={"If-Match": "*"}
    ).raise_for_status()
    assert numbers(ready) == [3, 1]
    again = ready.http.post(f"/v1/runs/{run_id}/restart").json()
    assert again["warm_start"] == 1
    assert ready.spec(again["id"])["warm_start"] == ready.spec(run_id)["warm_start"]
    ready.steer(again["id"], "cancel")
    ready.wait_until_ended(again["id"])
    ready.http.delete(ready.path("/versions/1")).raise_for_status()


def test_what_a_run_can_begin_with(own: Daemon) -> None:
    for wanted, words in ((True, "no active version"), (7, "no version 7")):
        refused = own.http.post(own.path("/runs"), json={"warm_start": wanted})
        assert refused.status_code == 409
        assert words in refused.json()["detail"]
    for wanted in (0, -1, 1.5, "1", None, []):
        refused = own.http.post(own.path("/runs"), json={"warm_start": wanted})
        assert refused.status_code == 422, wanted
    assert trained(own)["warm_start"] is None
    own.script(steps=100_000, step_seconds=0.05)
    run_id = own.train(warm_start=True)
    assert own.run(run_id)["warm_start"] == 1
    own.steer(run_id, "cancel")
    own.wait_until_ended(run_id)
    fresh = own.train(warm_start=False)
    assert own.run(fresh)["warm_start"] is None
    assert own.spec(fresh)["warm_start"] is None


def test_a_killed_daemon_removes_what_was_deleted(own: Daemon) -> None:
    """The row is gone with the answer; the folder stays while a worker may write, here for ever."""
    version = trained(own, WORSE)
    own.create_adapter("other")
    own.post_examples("other")
    own.script(steps=100_000, step_seconds=0.05, deaf=True)
    own.wait_for(own.train("other"), lambda run: run["step"] >= 1)
    own.http.delete(own.path("/versions/1")).raise_for_status()
    worker = own.worker_pid()
    own.kill()
    left = folder(own, version) if list(own.home.glob("adapters/*/versions/run-*")) else None
    own.start()
    assert numbers(own) == []
    until(lambda: left is None or not left.exists())
    assert "not adopted" not in own.log()
    with suppress(ProcessLookupError):  # it may have ended with its daemon
        kill(worker)
