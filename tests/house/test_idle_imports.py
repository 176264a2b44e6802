"""The daemon, which is there all day, carries nothing that only other commands or a run need."""

import json
import subprocess
import sys

from tests.house.repository import ROOT

ABSENT = {
    "httpx",
    "jinja2",
    "numpy",
    "onnxruntime",
    "pygments",
    "rich",
    "tokenizers",
    "torch",
}


def test_the_idle_daemon_imports_none_of_these() -> None:
    program = (
        "import json, sys, service.cli.main, service.cli.serve, service.daemon\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    too_much = ABSENT & set(json.loads(found.stdout))
    assert not too_much, f"import {', '.join(sorted(too_much))} inside the function that uses it"
