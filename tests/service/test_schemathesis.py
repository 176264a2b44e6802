"""The API against its own document, asked by schemathesis: every operation, good data and bad.

No answer may be a 500, have a status or a body that isn't documented, or accept what the document
forbids; no address may answer a method that it doesn't have.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.daemon import Daemon

SEED = 3
EXAMPLES = 15
SECONDS = 300

CONFIG = """
continue-on-failure = true
warnings = false
request-timeout = 20
max-stream-events = 3

[dictionaries]
names = { values = ["phone", "second", "mail", "owner"] }
ids = { values = [1, 2, 3, 4, 5] }

[parameters]
"path.name" = { dictionary = "names", probability = 0.7 }
"path.run_id" = { dictionary = "ids", probability = 0.7 }
"path.number" = { dictionary = "ids", probability = 0.7 }
"path.example_id" = { dictionary = "ids", probability = 0.7 }
"path.erasure_id" = { dictionary = "ids", probability = 0.7 }

[checks]
enabled = false
not_a_server_error = { enabled = true }
status_code_conformance = { enabled = true }
content_type_conformance = { enabled = true }
response_schema_conformance = { enabled = true }
unsupported_method = { enabled = true }
ignored_auth = { enabled = true }
negative_data_rejection = { enabled = true, expected-statuses = ["4xx", 507] }
"""

SAFE = ("--exclude-path", "/v1/client/rotate")  # the token that all other requests need


@pytest.fixture
def seeded(daemon: Daemon) -> Iterator[Daemon]:
    """A daemon with adapters, runs in several states, a version, and another client."""
    for name in ("phone", "second"):
        daemon.create_adapter(name)
        daemon.post_examples(name)
    daemon.wait_until_ended(daemon.train("phone"))
    daemon.script(steps=100_000, step_seconds=0.05)
    daemon.train("second")
    body = {"name": "mail", "scopes": ["examples:write", "status:read"]}
    code = daemon.http.post("/v1/pairing-codes", json=body).json()["code"]
    assert daemon.http.post("/v1/pair", json={"code": code}).status_code == 201
    yield daemon
    assert "unhandled" not in daemon.log()


def schemathesis(daemon: Daemon, folder: Path, token: str, *options: str) -> str:
    """Its report; fails with it where it found something."""
    (folder / "schemathesis.toml").write_text(CONFIG)
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            *("run", f"http://127.0.0.1:{daemon.port}/openapi.json"),
            *("--header", f"Authorization: Bearer {token}"),
            *("--seed", str(SEED), "--max-examples", str(EXAMPLES), "--workers", "2"),
            *options,
        ],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "120"},
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
    report = schemathesis(seeded, tmp_path, seeded.token, *SAFE, "--phases", "coverage,fuzzing")
    selected, total = map(int, re.findall(r"Operations: +(\d+) selected / (\d+) total", report)[0])
    assert total - selected == 1


def test_rotating_the_own_token_keeps_to_the_document(seeded: Daemon, tmp_path: Path) -> None:
    answer = seeded.http.post("/v1/clients/mail/rotate").json()
    options = ("--include-path", "/v1/client/rotate", "--phases", "fuzzing")
    schemathesis(seeded, tmp_path, answer["token"], *options)
