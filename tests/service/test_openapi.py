"""The document describes every route, and every route can be used without heavy libraries."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api_schemas.scopes import SCOPES
from service.door.guard import PUBLIC_PATHS
from tests.service.adapter_zips import adapter_zip, complete_model
from tests.service.daemon import Daemon

HEAVY = ("torch", "onnxruntime", "onnxruntime_qnn", "trainer", "npu", "numpy", "transformers")


@pytest.fixture(scope="module")
def document(shared: Daemon) -> dict[str, Any]:
    answer: dict[str, Any] = shared.http.get("/openapi.json").json()
    return answer


PROBLEM = {"/v1/chat/completions": "OpenAIProblem"}
"""The schema of an operation's problems, where it has more members than others."""


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_route_is_described_with_its_problems(document: dict[str, Any]) -> None:
    found = {(method, path) for method, path, _ in operations(document)}
    assert found == {
        ("GET", "/healthz"),
        ("POST", "/v1/pair"),
        ("GET", "/v1/hello"),
        ("POST", "/v1/pairing-codes"),
        ("GET", "/v1/pairing-codes/{name}"),
        ("DELETE", "/v1/pairing-codes/{name}"),
        ("GET", "/v1/client"),
        ("POST", "/v1/client/rotate"),
        ("GET", "/v1/clients"),
        ("GET", "/v1/clients/{name}"),
        ("PATCH", "/v1/clients/{name}"),
        ("POST", "/v1/clients/{name}/revoke"),
        ("POST", "/v1/clients/{name}/rotate"),
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
        ("POST", "/v1/runs/{run_id}/pause"),
        ("POST", "/v1/runs/{run_id}/resume"),
        ("POST", "/v1/runs/{run_id}/cancel"),
        ("POST", "/v1/runs/{run_id}/restart"),
        ("GET", "/v1/runs/{run_id}/events"),
        ("GET", "/v1/device"),
        ("GET", "/v1/schedule"),
        ("PUT", "/v1/schedule"),
        ("GET", "/v1/pause"),
        ("PUT", "/v1/pause"),
        ("DELETE", "/v1/pause"),
        ("GET", "/v1/history"),
        ("GET", "/metrics"),
        ("GET", "/v1/adapters/{name}/versions"),
        ("GET", "/v1/adapters/{name}/versions/{number}"),
        ("GET", "/v1/adapters/{name}/versions/{number}/download"),
        ("POST", "/v1/adapters/{name}/versions/import"),
        ("POST", "/v1/adapters/{name}/versions/{number}/activate"),
        ("POST", "/v1/adapters/{name}/versions/{number}/deactivate"),
        ("DELETE", "/v1/adapters/{name}/examples/{example_id}"),
        ("DELETE", "/v1/adapters/{name}/examples"),
        ("DELETE", "/v1/adapters/{name}/versions/{number}"),
        ("DELETE", "/v1/adapters/{name}"),
        ("DELETE", "/v1/clients/{name}"),
        ("GET", "/v1/erasures/{erasure_id}"),
        ("POST", "/v1/adapters/{name}/predict"),
        ("POST", "/v1/chat/completions"),
    }
    for method, path, operation in operations(document):
        problems = {
            status
            for status, response in operation["responses"].items()
            if response.get("content", {}).get("application/problem+json")
            == {"schema": {"$ref": f"#/components/schemas/{PROBLEM.get(path, 'Problem')}"}}
        }
        expected = {"401", "403", "422", "503"}
        expected |= {"404"} if "{" in path else set()
        expected |= {"400", "408", "413", "415"} if "requestBody" in operation else set()
        expected |= {"409"} if method == "POST" else set()
        assert expected <= problems, (method, path)
        assert operation["description"], (method, path)
        if "security" in operation:
            assert set(operation["x-scopes"]) <= set(SCOPES), (method, path)
        assert (operation.get("security") == [{"HTTPBearer": []}]) == (path not in PUBLIC_PATHS)


def test_an_address_that_lacks_a_method_names_those_it_has(
    shared: Daemon, document: dict[str, Any]
) -> None:
    for path, methods in document["paths"].items():
        address = re.sub(r"\{\w+\}", "1", path)
        response = shared.http.request("TRACE", address)
        assert response.status_code == 405, path
        assert response.headers["allow"].split(", ") == sorted(
            (method.upper() for method in methods),
            key=("GET", "POST", "PUT", "PATCH", "DELETE").index,
        ), path
    assert shared.http.post("/docs").headers["allow"] == "GET"


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


def use_clients(daemon: Daemon, use: Callable[..., Any]) -> None:
    new = {"name": "notes", "scopes": ["status:read"]}
    code = use("POST", "/v1/pairing-codes", json=new).json()["code"]
    use("GET", "/v1/pairing-codes/{name}", name="notes")
    app = use("POST", "/v1/pair", json={"code": code}).json()
    use("DELETE", "/v1/pairing-codes/{name}", name="notes")
    use("GET", "/v1/hello", params={"nonce": "A" * 22, "key": app["server_key_id"]})
    token = {"Authorization": f"Bearer {app['token']}"}
    use("POST", "/v1/client/rotate", headers=token)
    use("GET", "/v1/client")
    use("GET", "/v1/clients")
    use("GET", "/v1/clients/{name}", name="notes")
    use("PATCH", "/v1/clients/{name}", name="notes", json={"quotas": {"most_bytes": 5}})
    use("POST", "/v1/clients/{name}/rotate", name="notes")
    use("POST", "/v1/clients/{name}/revoke", name="notes")


def use_runs(daemon: Daemon, use: Callable[..., Any]) -> None:
    daemon.script(steps=1000, step_seconds=0.05)
    use("POST", "/v1/adapters/{name}/runs", json={})
    use("GET", "/v1/runs/{run_id}")
    use("POST", "/v1/runs/{run_id}/pause")
    use("POST", "/v1/runs/{run_id}/resume")
    use("POST", "/v1/runs/{run_id}/cancel")
    daemon.wait_for(1, lambda run: run["status"] == "cancelled")
    use("GET", "/v1/runs/{run_id}/events")
    daemon.script()
    use("POST", "/v1/runs/{run_id}/restart")
    assert daemon.wait_until_ended(2)["status"] == "completed"


def use_deletions(use: Callable[..., Any]) -> None:
    use("DELETE", "/v1/adapters/{name}/examples/{example_id}")
    use("GET", "/v1/erasures/{erasure_id}")
    use("DELETE", "/v1/adapters/{name}/examples", params={"all": "true"})
    use("DELETE", "/v1/adapters/{name}/versions/{number}")
    use("DELETE", "/v1/adapters/{name}")
    use("DELETE", "/v1/clients/{name}", name="notes")


def test_no_route_loads_torch_onnxruntime_or_the_trainer(
    home: Path, document: dict[str, Any]
) -> None:
    program = (str(Path(__file__).with_name("recording_daemon.py")),)
    complete_model(home)
    used = set()
    with Daemon(home, program=program, forked=False) as daemon:

        def use(
            method: str, template: str, *, name: str = "phone", **options: Any
        ) -> httpx.Response:
            path = template.format(name=name, run_id=1, number=1, example_id=1, erasure_id=1)
            response = daemon.http.request(method, path, **options)
            assert response.status_code < 300, response.text
            used.add((method, template))
            return response

        use("GET", "/healthz")
        use("GET", "/v1/models")
        use_clients(daemon, use)
        use("POST", "/v1/adapters", json={"name": "phone", "base_model": "tiny"})
        use("GET", "/v1/adapters")
        body = {"input": "hello", "label": "now", "split": "train"}
        use("POST", "/v1/adapters/{name}/examples", json=body)
        use("GET", "/v1/adapters/{name}/examples")
        use("GET", "/v1/adapters/{name}/examples/{example_id}")
        change = {"json": {"too_long": "cut"}, "headers": {"If-Match": "*"}}
        use("PATCH", "/v1/adapters/{name}", **change)
        use_runs(daemon, use)
        use("GET", "/v1/adapters/{name}")
        use("GET", "/v1/adapters/{name}/runs")
        use("GET", "/v1/device")
        schedule = use("GET", "/v1/schedule").json()
        change = {"json": {"windows": schedule["windows"]}, "headers": {"If-Match": "*"}}
        use("PUT", "/v1/schedule", **change)
        use("PUT", "/v1/pause", json={"until": None})
        use("GET", "/v1/pause")
        use("DELETE", "/v1/pause")
        use("GET", "/v1/history")
        use("GET", "/metrics")
        use("GET", "/v1/adapters/{name}/versions")
        use("GET", "/v1/adapters/{name}/versions/{number}")
        use("GET", "/v1/adapters/{name}/versions/{number}/download")
        use("POST", "/v1/adapters/{name}/versions/{number}/activate")
        use("POST", "/v1/adapters/{name}/predict", json={"input": "hello"})
        chat = {"model": "phone", "messages": [{"role": "user", "content": "hello"}]}
        use("POST", "/v1/chat/completions", json=chat)
        use("POST", "/v1/adapters/{name}/versions/{number}/deactivate")
        zipped = {"content": adapter_zip(home), "headers": {"Content-Type": "application/zip"}}
        use("POST", "/v1/adapters/{name}/versions/import", **zipped)
        use_deletions(use)
        assert daemon.http.get("/openapi.json").status_code == 200
        assert used == {(method, path) for method, path, _ in operations(document)}
        maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert not [name for name in ("libtorch", "onnxruntime", "QnnHtp") if name in maps]
    modules = json.loads((home / "modules.json").read_text())
    assert "service.app" in modules
    assert "tokenizers" in modules  # the door check did run
    loaded = [name for name in modules if name.partition(".")[0] in HEAVY]
    assert loaded == []
