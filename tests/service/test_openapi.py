"""The document describes every route, and every route can be used without heavy libraries."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_schemas.scopes import SCOPES
from tests.service.daemon import Daemon

HEAVY = ("torch", "onnxruntime", "onnxruntime_qnn", "trainer", "npu", "numpy", "transformers")


@pytest.fixture(scope="module")
def document(shared: Daemon) -> dict[str, Any]:
    answer: dict[str, Any] = shared.http.get("/openapi.json").json()
    return answer


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_route_is_described_with_its_problems(document: dict[str, Any]) -> None:
    found = {(method, path) for method, path, _ in operations(document)}
    assert found == {
        ("GET", "/healthz"),
        ("GET", "/v1/models"),
        ("POST", "/v1/adapters"),
        ("GET", "/v1/adapters"),
        ("GET", "/v1/adapters/{name}"),
        ("PATCH", "/v1/adapters/{name}"),
        ("POST", "/v1/adapters/{name}/examples"),
        ("GET", "/v1/adapters/{name}/examples"),
        ("GET", "/v1/adapters/{name}/examples/{example_id}"),
        ("POST", "/v1/adapters/{name}/runs"),
        ("GET", "/v1/adapters/{name}/runs"),
        ("GET", "/v1/runs/{run_id}"),
        ("GET", "/v1/adapters/{name}/versions"),
        ("GET", "/v1/adapters/{name}/versions/{number}"),
        ("GET", "/v1/adapters/{name}/versions/{number}/download"),
    }
    for method, path, operation in operations(document):
        problems = {
            status
            for status, response in operation["responses"].items()
            if response["content"].get("application/problem+json")
            == {"schema": {"$ref": "#/components/schemas/Problem"}}
        }
        expected = {"401", "403", "422", "503"}
        expected |= {"404"} if "{" in path else set()
        expected |= {"400", "413", "415", "409"} if method == "POST" else set()
        assert expected <= problems, (method, path)
        assert operation["description"], (method, path)
        if "security" in operation:
            assert set(operation["x-scopes"]) <= set(SCOPES), (method, path)
        assert (operation.get("security") == [{"HTTPBearer": []}]) == (path != "/healthz")


def test_every_reference_leads_somewhere_inside(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for part in text.split('"$ref": "')[1:]:
        target: Any = document
        for step in part.partition('"')[0].removeprefix("#/").split("/"):
            target = target[step]
    assert "HTTPValidationError" not in text
    assert "http://" not in text.replace("http://127.0.0.1", "")
    assert "https://" not in text


def test_no_page_that_loads_from_the_network(shared: Daemon) -> None:
    for path in ("/redoc", "/docs/oauth2-redirect"):
        assert shared.http.get(path).status_code == 404


def test_no_route_loads_torch_onnxruntime_or_the_trainer(
    home: Path, document: dict[str, Any]
) -> None:
    program = (str(Path(__file__).with_name("recording_daemon.py")),)
    used = set()
    with Daemon(home, program=program) as daemon:

        def use(method: str, template: str, **options: Any) -> None:
            path = template.format(name="phone", run_id=1, number=1, example_id=1)
            response = daemon.http.request(method, path, **options)
            assert response.status_code < 300, response.text
            used.add((method, template))

        use("GET", "/healthz")
        use("GET", "/v1/models")
        use("POST", "/v1/adapters", json={"name": "phone", "base_model": "tiny"})
        use("GET", "/v1/adapters")
        body = {"input": "hello", "label": "now", "split": "train"}
        use("POST", "/v1/adapters/{name}/examples", json=body)
        use("GET", "/v1/adapters/{name}/examples")
        use("GET", "/v1/adapters/{name}/examples/{example_id}")
        change = {"json": {"too_long": "cut"}, "headers": {"If-Match": "*"}}
        use("PATCH", "/v1/adapters/{name}", **change)
        use("POST", "/v1/adapters/{name}/runs", json={})
        use("GET", "/v1/runs/{run_id}")
        assert daemon.wait_until_ended(1)["status"] == "completed"
        use("GET", "/v1/adapters/{name}")
        use("GET", "/v1/adapters/{name}/runs")
        use("GET", "/v1/adapters/{name}/versions")
        use("GET", "/v1/adapters/{name}/versions/{number}")
        use("GET", "/v1/adapters/{name}/versions/{number}/download")
        assert daemon.http.get("/openapi.json").status_code == 200
        assert used == {(method, path) for method, path, _ in operations(document)}
        maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert not [name for name in ("libtorch", "onnxruntime", "QnnHtp") if name in maps]
    modules = json.loads((home / "modules.json").read_text())
    assert "service.app" in modules
    assert "tokenizers" in modules  # the door check did run
    loaded = [name for name in modules if name.partition(".")[0] in HEAVY]
    assert loaded == []
