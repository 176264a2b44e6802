"""The API against its own document, asked by schemathesis: every operation, good data and bad.

No answer may be a 500, have a status or a body that isn't documented, or accept what the document
forbids; no address may answer a method that it doesn't have.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.daemon import CHANGED, Daemon, until

SEED = 3
EXAMPLES = 15
SECONDS = 300
HOOKS = Path(__file__).with_name("schemathesis_hooks.py")

CONFIG = r"""
continue-on-failure = true
warnings = false
request-timeout = 20
max-stream-events = 3

[dictionaries]
names = { values = ["phone", "phone", "second", "mail"] }
clients = { values = ["owner", "mail"] }
passing = { values = ["gone-1", "gone-2", "gone-3", "gone-4"] }
ids = { values = [1, 2, 3, 4, 5, 6, 7] }
own_ids = { values = ["a", "b", "c"] }
tags = { values = ["*"] }
finished = { values = [1] }
running = { values = [2] }
queued = { values = [3] }
models = { values = ["tiny"] }

[parameters]
"path.name" = { dictionary = "names", probability = 0.8 }
"path.run_id" = { dictionary = "ids", probability = 0.8 }
"path.number" = { dictionary = "ids", probability = 0.8 }
"path.example_id" = { dictionary = "ids", probability = 0.8 }
"path.erasure_id" = { dictionary = "finished", probability = 0.8 }
"query.client" = { dictionary = "clients", probability = 0.9 }
"query.external_id" = { dictionary = "own_ids", probability = 0.8 }
"header.If-Match" = { dictionary = "tags", probability = 0.9 }
"body.base_model" = { dictionary = "models", probability = 0.8 }
"body.model" = { dictionary = "names", probability = 0.8 }

[[operations]]
include-method = ["POST", "PATCH", "PUT"]
parameters = { "query.client" = "owner" }

[[operations]]
include-name-regex = "DELETE /v1/(adapters|clients)/.name.$"
parameters = { "path.name" = { dictionary = "passing", probability = 0.8 } }

[[operations]]
include-path-regex = "/v1/runs/.run_id./(restart|events)$"
parameters = { "path.run_id" = { dictionary = "finished", probability = 0.8 } }

[[operations]]
include-path-regex = "/v1/runs/.run_id./(pause|resume)$"
parameters = { "path.run_id" = { dictionary = "running", probability = 0.8 } }

[[operations]]
include-path = "/v1/runs/{run_id}/cancel"
parameters = { "path.run_id" = { dictionary = "queued", probability = 0.8 } }

[[operations]]
include-path-regex = "/v1/adapters/.name./versions/.number.(/(de)?activate)?$"
parameters = { "path.number" = { dictionary = "finished", probability = 0.9 } }

[checks]
enabled = false
not_a_server_error = { enabled = true }
status_code_conformance = { enabled = true }
content_type_conformance = { enabled = true }
response_schema_conformance = { enabled = true }
unsupported_method = { enabled = true }
allow_header_conformance = { enabled = true }
response_headers_conformance = { enabled = true }
missing_required_header = { enabled = true, expected-statuses = ["4xx"] }
use_after_free = { enabled = true }
ensure_resource_availability = { enabled = true }
ignored_auth = { enabled = true }
negative_data_rejection = { enabled = true, expected-statuses = ["4xx", 507] }
"""

# Whether these go well depends on what was asked before, and on chance; their own tests walk them.
BY_CHANCE = {
    ("POST", "/v1/runs/{run_id}/pause"),
    ("POST", "/v1/runs/{run_id}/resume"),
    ("POST", "/v1/runs/{run_id}/cancel"),
    ("POST", "/v1/runs/{run_id}/restart"),
    ("DELETE", "/v1/adapters/{name}/versions/{number}"),
    ("POST", "/v1/adapters/{name}/versions/import"),
    ("POST", "/v1/adapters/{name}/versions/{number}/activate"),
    ("POST", "/v1/adapters/{name}/versions/{number}/deactivate"),
}

SAFE = ("--exclude-path", "/v1/client/rotate")  # the token that all other requests need


@pytest.fixture
def daemon(home: Path) -> Iterator[Daemon]:
    """One whose worker predicts while it trains."""
    environment = {
        "LORAD_PREDICT_WHILE_TRAINING": "serve",
        "CHANGED": json.dumps({"service.door.penalty:SECONDS": 0.0}),  # half a second a 401
    }
    with Daemon(home, program=CHANGED, environment=environment) as daemon:
        yield daemon


@pytest.fixture
def seeded(daemon: Daemon) -> Iterator[Daemon]:
    """A daemon with adapters, runs in several states, a version, and another client."""
    daemon.create_adapter("phone")
    daemon.create_adapter("second", labels=None)
    for name in ("phone", "second"):
        daemon.post_examples(name)
        for own in ("a", "b", "c"):
            body = {"input": f"text {own}", "label": "now", "external_id": own}
            assert daemon.http.post(daemon.path("/examples", name), json=body).status_code == 201
    for number in range(1, 5):
        daemon.create_adapter(f"gone-{number}")
        daemon.post_examples(f"gone-{number}")
        pair(daemon, f"gone-{number}")
    assert daemon.http.delete(daemon.path("/examples/1")).status_code == 200  # an erasure
    pair(daemon, "mail")
    daemon.wait_until_ended(daemon.train("phone"))
    assert (
        daemon.http.post(daemon.path("/predict", "phone"), json={"input": "x"}).status_code == 200
    )
    daemon.script(steps=100_000, step_seconds=0.05)
    for name in ("second", "gone-1", "gone-2", "gone-3"):
        daemon.train(name)
    yield daemon
    assert "unhandled" not in daemon.log()


def pair(daemon: Daemon, name: str) -> None:
    body = {"name": name, "scopes": ["examples:write", "status:read"]}
    code = daemon.http.post("/v1/pairing-codes", json=body).json()["code"]
    assert daemon.http.post("/v1/pair", json={"code": code}).status_code == 201


def schemathesis(daemon: Daemon, folder: Path, token: str, *options: str) -> str:
    """Its report; fails with it where it found something."""
    (folder / "schemathesis.toml").write_text(CONFIG)
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            *("run", f"http://127.0.0.1:{daemon.port}/openapi.json"),
            *("--header", f"Authorization: Bearer {token}"),
            # One worker: several at once parse lambdas, which Python 3.11 can't do in two threads.
            *("--seed", str(SEED), "--max-examples", str(EXAMPLES), "--workers", "1"),
            *options,
        ],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "120", "SCHEMATHESIS_HOOKS": str(HOOKS)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    report = re.sub(r"(?m)^(.{400}).+$", r"\1…", done.stdout + done.stderr)
    assert done.returncode == 0, report
    return report


@pytest.mark.slow
def test_every_operation_keeps_to_the_document(seeded: Daemon, tmp_path: Path) -> None:
    schemathesis(seeded, tmp_path, seeded.token, *SAFE, "--phases", "examples,coverage,fuzzing")
    paths = seeded.http.get("/openapi.json").json()["paths"]
    operations = {(method.upper(), path) for path in paths for method in paths[path]}
    log = seeded.log().replace(":int}", "}")  # the log has patterns as the routes are declared
    answered = re.findall(r"lorad\.access: (\S+) (\S+) 2\d\d ", log)
    assert operations - set(answered) <= BY_CHANCE | {("POST", "/v1/client/rotate")}


def test_rotating_the_own_token_keeps_to_the_document(seeded: Daemon, tmp_path: Path) -> None:
    answer = seeded.http.post("/v1/clients/mail/rotate").json()
    options = ("--include-path", "/v1/client/rotate", "--phases", "fuzzing")
    schemathesis(seeded, tmp_path, answer["token"], *options)
    until(lambda: "POST /v1/client/rotate 200" in seeded.log())
