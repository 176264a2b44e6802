"""Creating adapters and listing them, over HTTP."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from api_schemas.scopes import Scope
from tests.service.apps import pair
from tests.service.daemon import Daemon, until


def test_retention_is_kept_and_shown(shared: Daemon) -> None:
    bounds = {"keep_days": 30, "max_examples": 1000, "keep_versions": None}
    assert shared.create_adapter("bounded", retention=bounds)["retention"] == bounds
    assert shared.adapter("bounded")["retention"] == bounds
    free = {"keep_days": None, "max_examples": None, "keep_versions": 5}
    assert shared.create_adapter("unbounded")["retention"] == free
    assert shared.create_adapter("half", retention={"keep_days": 3650})["retention"] == {
        "keep_days": 3650,
        "max_examples": None,
        "keep_versions": 5,
    }


def test_pages_of_adapters_by_name(daemon: Daemon) -> None:
    names = ["b", "a", "a.b", "a-b", "9", "z", "aa"]
    for name in names:
        daemon.create_adapter(name)
    pages = daemon.pages("/v1/adapters", "adapters", limit=3)
    assert [[adapter["name"] for adapter in page] for page in pages] == [
        ["9", "a", "a-b"],
        ["a.b", "aa", "b"],
        ["z"],
    ]
    whole = daemon.http.get("/v1/adapters", params={"limit": 7}).json()
    assert len(whole["adapters"]) == 7
    assert whole["next"] is None


def test_an_adapter_created_between_two_pages_comes_where_it_belongs(daemon: Daemon) -> None:
    for name in ("b", "d"):
        daemon.create_adapter(name)
    first = daemon.http.get("/v1/adapters", params={"limit": 1}).json()
    daemon.create_adapter("a")
    daemon.create_adapter("c")
    rest = daemon.http.get("/v1/adapters", params={"cursor": first["next"]}).json()
    assert [adapter["name"] for adapter in rest["adapters"]] == ["c", "d"]


def test_of_twenty_creations_of_one_name_one_wins(daemon: Daemon) -> None:
    gate = threading.Barrier(20)

    def create(_number: int) -> int:
        with httpx.Client(
            base_url=daemon.http.base_url, headers=daemon.http.headers, timeout=60, trust_env=False
        ) as client:
            gate.wait()
            body = {"name": "raced", "base_model": "tiny"}
            return client.post("/v1/adapters", json=body).status_code

    with ThreadPoolExecutor(20) as pool:
        assert sorted(pool.map(create, range(20))) == [201] + [409] * 19


@pytest.mark.parametrize("name", ["phone", "absent"])
def test_versions_of_an_adapter_without_any(shared: Daemon, name: str) -> None:
    response = shared.http.get(f"/v1/adapters/{name}/versions")
    if name == "absent":
        assert response.status_code == 404
    else:
        assert response.json() == {"versions": [], "next": None}


def test_pages_of_versions_newest_first(daemon: Daemon) -> None:
    daemon.create_adapter("phone")
    daemon.post_examples()
    for number in range(1, 4):
        assert daemon.wait_until_ended(daemon.train())["version"] == number
    pages = daemon.pages("/v1/adapters/phone/versions", "versions", limit=2)
    assert [[version["number"] for version in page] for page in pages] == [[3, 2], [1]]


def test_the_holdout_of_a_version_shows_the_labels_of_now(daemon: Daemon) -> None:
    daemon.create_adapter("phone")
    path = "/v1/adapters/phone/examples"
    daemon.post_examples()
    [example] = daemon.http.post(
        path, json={"input": "x", "label": "now", "split": "holdout", "external_id": "e"}
    ).json()["examples"]
    daemon.wait_until_ended(daemon.train())
    address = "/v1/adapters/phone/versions/1"

    def label(http: httpx.Client) -> str | None:
        detail = http.get(address).json()
        [row] = [row for row in detail["holdout_rows"] if row["example_id"] == example["id"]]
        found: str | None = row["label"]
        return found

    assert label(daemon.http) == "now"
    daemon.http.post(path, json={"input": "x", "label": "later", "external_id": "e"})
    assert label(daemon.http) == "later"
    assert daemon.http.get(address).json()["seen_deleted"] == 0
    assert daemon.http.delete(f"{path}/{example['id']}").status_code == 200
    assert label(daemon.http) is None
    assert daemon.http.get(address).json()["seen_deleted"] == 1
    [listed] = daemon.http.get("/v1/adapters/phone/versions").json()["versions"]
    assert listed["seen_deleted"] == 1


@pytest.mark.parametrize("may_read", [True, False])
def test_who_may_not_read_examples_sees_no_labels_of_theirs(daemon: Daemon, may_read: bool) -> None:
    scopes: list[Scope] = ["status:read", "examples:write", "train", "adapters:manage"]
    with pair(daemon, "maker", *scopes) as maker:
        body = {"name": "mine", "base_model": "tiny", "labels": None}
        assert maker.http.post("/v1/adapters", json=body).status_code == 201
        batch = [
            {"input": f"text {number}", "label": "a private answer", "split": split}
            for split in ("train", "holdout")
            for number in (1 if split == "train" else 10, 2 if split == "train" else 20)
        ]
        response = maker.http.post("/v1/adapters/mine/examples", json={"examples": batch})
        assert response.status_code == 201, response.text
        run_id = maker.http.post("/v1/adapters/mine/runs", json={}).json()["id"]
        until(lambda: maker.http.get(f"/v1/runs/{run_id}").json()["status"] == "completed")
        if not may_read:
            change = {"scopes": ["status:read"]}
            assert daemon.http.patch("/v1/clients/maker", json=change).status_code == 200
        version = maker.http.get("/v1/adapters/mine/versions/1")
        assert version.status_code == 200
        assert ("a private answer" in version.text) == may_read
