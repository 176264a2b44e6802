"""Importing an adapter over HTTP: it becomes a version, once, and only a person activates it."""

import io
import json
import shutil
import sqlite3
import zipfile
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.for_apps import lorad_client as client
from tests.service.adapter_zips import adapter_zip, complete_model
from tests.service.daemon import Daemon, until
from tests.service.test_python_client import pairing_code
from trainer.safetensors_file import SafetensorsFile

ZIP = {"Content-Type": "application/zip"}


@pytest.fixture(scope="module")
def importing(shared: Daemon) -> Daemon:
    complete_model(shared.home)
    shared.name = "taking"
    shared.create_adapter()
    shared.post_examples()
    return shared


def send(daemon: Daemon, data: bytes, **headers: str) -> httpx.Response:
    path = daemon.path("/versions/import")
    return daemon.http.post(path, content=data, headers=ZIP | headers)


def imported(daemon: Daemon, data: bytes) -> dict[str, Any]:
    response = send(daemon, data)
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    assert response.headers["Location"] == daemon.path(f"/versions/{answer['number']}")
    return answer


def test_it_is_a_version_like_any_other_but_not_measured(importing: Daemon, tmp_path: Path) -> None:
    data = adapter_zip(tmp_path)
    answer = imported(importing, data)
    number = answer["number"]
    assert (answer["verdict"], answer["active"], answer["run"]) == ("imported", False, None)
    assert answer["imported"] == {"base_model": "tiny", "base_known": True, "dtype": "F32"}
    assert answer["metrics"]["holdout"] == 0
    detail = importing.http.get(importing.path(f"/versions/{number}")).json()
    assert detail == answer | {"holdout_rows": []}
    got = importing.http.get(importing.path(f"/versions/{number}/download"))
    assert got.status_code == 200, got.text
    for packed, name in ((data, "in"), (got.content, "out")):
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            archive.extract("adapter_model.safetensors", tmp_path / name)
    given, kept = (SafetensorsFile(tmp_path / one / "adapter_model.safetensors") for one in
                   ("in", "out"))  # fmt: skip
    assert kept.names() == given.names()
    assert all((kept.load(name) == given.load(name)).all() for name in given.names())
    again = send(importing, data)
    assert (again.status_code, again.json()) == (200, answer), "the same file is the same version"
    path = importing.path(f"/versions/{number}/activate")
    assert importing.http.post(path).json()["activated_by"] == "owner"
    run_id = importing.train(warm_start=True)
    assert importing.spec(run_id)["warm_start"]["path"].split("/")[-1].startswith("import-")
    importing.wait_until_ended(run_id)
    kinds = {"adapter": importing.name, "kind": "version-imported"}
    [entry] = importing.http.get("/v1/history", params=kinds).json()["entries"]
    assert entry["message"].startswith(f"version {number} imported")


def test_sent_again_with_its_key_it_has_the_same_answer(importing: Daemon, tmp_path: Path) -> None:
    data = adapter_zip(tmp_path, seed=1)
    key = {"Idempotency-Key": "import-1"}
    first = send(importing, data, **key)
    assert first.status_code == 201
    again = send(importing, data, **key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["Idempotent-Replay"] == "true"
    assert send(importing, adapter_zip(tmp_path, seed=2), **key).status_code == 409


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"base_hash": "sha256:another"}, ["sha256:tiny", "sha256:another"]),
        ({"rank": 4}, ["r 8", "4"]),
        ({"alpha": 8.0}, ["lora_alpha 16", "8"]),
        ({"use_rslora": True}, ["use_rslora false", "true"]),
        ({"targets": ["q_proj", "v_proj"]}, ["k_proj", "found q_proj, v_proj"]),
        ({"top_layers": 2}, ["layers 0, 1, 2, 3", "found 2, 3"]),
    ],
)
def test_another_base_or_another_kind_is_refused_by_what_was_found(
    importing: Daemon, tmp_path: Path, changed: dict[str, Any], words: list[str]
) -> None:
    response = send(importing, adapter_zip(tmp_path, **changed))
    assert response.status_code == 409, response.text
    for word in words:
        assert word in response.json()["detail"]


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"", ZIP, 422),
        (b"no zip", ZIP, 422),
        (b"{}", {"Content-Type": "application/json"}, 415),
        (b"x", ZIP | {"Content-Encoding": "gzip"}, 415),
    ],
)
def test_what_is_no_adapter(
    importing: Daemon, data: bytes, headers: dict[str, str], status: int
) -> None:
    path = importing.path("/versions/import")
    response = importing.http.post(path, content=data, headers=headers)
    assert response.status_code == status, response.text
    assert list(importing.home.glob("adapters/*/versions/.tmp-*")) == []


def test_the_python_client_imports_and_activates(importing: Daemon, tmp_path: Path) -> None:
    credentials = client.pair(importing.port, pairing_code(importing))
    with client.Lorad(credentials) as lorad:
        settings = {"name": "mine", "base_model": "tiny", "labels": ["now", "later"]}
        lorad.request("POST", "/v1/adapters", settings)
        number = lorad.import_version("mine", adapter_zip(tmp_path, seed=3))["number"]
        assert lorad.activate("mine", number)["activated_by"] == "mail"
        assert lorad.adapter("mine")["active_version"]["number"] == number


def test_more_than_the_limit_is_refused_before_it_is_sent(importing: Daemon) -> None:
    with closing(HTTPConnection("127.0.0.1", importing.port, timeout=30)) as connection:
        connection.putrequest("POST", importing.path("/versions/import"))
        headers = {"Authorization": f"Bearer {importing.token}", "Content-Length": 256 * 2**20 + 1}
        for name, value in (headers | ZIP).items():
            connection.putheader(name, str(value))
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_only_there_may_a_body_be_so_large(importing: Daemon) -> None:
    big = {"content": b"x" * (2 * 2**20 + 1), "headers": ZIP}
    assert importing.http.post(importing.path("/runs"), **big).status_code == 413
    assert importing.http.post(importing.path("/versions/import"), **big).status_code == 422


def test_a_folder_without_its_row_is_taken_in_at_the_next_start(
    daemon: Daemon, tmp_path: Path
) -> None:
    """As if the daemon had been killed between the child's rename and its own commit."""
    complete_model(daemon.home)
    daemon.create_adapter()
    data = adapter_zip(tmp_path)
    imported(daemon, data)
    imported(daemon, adapter_zip(tmp_path, seed=1))
    daemon.kill()
    with closing(sqlite3.connect(daemon.home / "lorad.db")) as database:
        database.execute("DELETE FROM versions")
        database.commit()
    broken = next(daemon.home.glob("adapters/*/versions/import-*"))
    (broken / "adapter_config.json").write_text("{}")
    foreign = broken.with_name("import-0")
    shutil.copytree(broken, foreign)
    manifest = json.loads((foreign / "version.json").read_text()) | {"adapter_id": 99}
    (foreign / "version.json").write_text(json.dumps(manifest))
    daemon.start()
    listed = daemon.http.get(daemon.path("/versions")).json()["versions"]
    assert [(one["number"], one["verdict"]) for one in listed] == [(3, "imported")]
    assert daemon.log().count("not adopted") == 2


def test_a_deleted_import_stays_deleted_and_can_be_imported_again(
    daemon: Daemon, tmp_path: Path
) -> None:
    complete_model(daemon.home)
    daemon.create_adapter()
    data = adapter_zip(tmp_path)
    imported(daemon, data)
    assert daemon.http.delete(daemon.path("/versions/1")).json()["erased"] == "done"
    daemon.stop()
    daemon.start()
    assert daemon.http.get(daemon.path("/versions")).json()["versions"] == []
    assert imported(daemon, data)["number"] == 2
    until(lambda: len(list(daemon.home.glob("adapters/*/versions/import-*"))) == 1)
