"""The environment of `make termux-versions`: a phone's versions, and the same API from them."""

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from bench.android_requirements import PINS_FILE, read_pins
from bench.termux_versions import ENVIRONMENT, KEPT, TESTS
from tests.house.repository import ROOT

PINS = read_pins(PINS_FILE)
THERE = Path(sys.prefix) == ENVIRONMENT
there = pytest.mark.skipif(not THERE, reason="runs in `make termux-versions`")


@there
def test_every_version_is_a_phones_but_torchs() -> None:
    found = {name: version(name) for name in PINS if name not in KEPT}
    assert found == {name: pin for name, pin in PINS.items() if name not in KEPT}


@there
@pytest.mark.parametrize("name", ["safetensors", "onnxruntime_qnn", "transformers", "peft"])
def test_what_a_phone_lacks_is_not_here(name: str) -> None:
    assert importlib.util.find_spec(name) is None
    with pytest.raises(PackageNotFoundError):
        version(name)


@there
def test_a_child_has_them_too_and_no_zones_but_tzdatas() -> None:
    names = "numpy.__version__, pydantic.VERSION, *zoneinfo.TZPATH"
    told = f"import numpy, pydantic, zoneinfo\nprint({names})"
    child = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert child.stdout.split() == [PINS["numpy"], PINS["pydantic"]]


@there
def test_the_openapi_document_is_the_same_with_both_pydantics() -> None:
    ours, phones = document(ROOT / ".venv/bin/python"), document(Path(sys.executable))
    assert len(ours["paths"]) > 30
    assert ours == phones


@pytest.mark.parametrize("path", TESTS)
def test_the_tests_that_run_there_exist(path: str) -> None:
    file, _, function = path.partition("::")
    assert f"def {function}" in (ROOT / file).read_text()


def document(python: Path) -> dict[str, Any]:
    printed = subprocess.run(
        [python, "-m", "tests.house.openapi_document"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(printed.stdout)
    return result
