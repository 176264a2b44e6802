"""The Android check says no when it should, and the rooms really live on what a phone gets."""

import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from bench import android_requirements as android
from tests.house.repository import ROOMS, ROOT

PINS = android.read_pins(ROOT / "constraints.txt") | android.read_pins(android.PINS_FILE)


def resolve(requirements: list[str], pins: dict[str, str]) -> dict[str, str]:
    try:
        return android.resolve(requirements, pins)
    except android.IndexUnreachableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no package index: {error}")


def test_the_runtime_set_needs_no_compiler_and_the_file_is_its_solution() -> None:
    solution = resolve(android.runtime_requirements(), PINS)
    assert android.describe(solution) == android.PINS_FILE.read_text()


@pytest.mark.parametrize(
    "requirement",
    [
        "orjson",
        "safetensors",
        "uvicorn[standard]",
        "onnxruntime-qnn",
        "transformers",
        "huggingface-hub",
    ],
)
def test_a_dependency_that_needs_a_compiler_is_refused(requirement: str) -> None:
    with pytest.raises(android.NeedsCompilerError):
        resolve([*android.runtime_requirements(), requirement], PINS)


def test_a_pure_python_dependency_is_not_refused() -> None:
    requirements = [*android.runtime_requirements(), "sortedcontainers"]
    assert "sortedcontainers" in resolve(requirements, PINS)


def test_a_bound_above_what_termux_has_is_refused() -> None:
    with pytest.raises(android.NeedsCompilerError):
        resolve([*android.runtime_requirements(), "torch>=2.12"], PINS)


def test_markers_judged_for_another_system_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(android, "PROBE_MARKER", "sys_platform == 'linux'")
    with pytest.raises(android.MarkersMisjudgedError):
        resolve(["tzdata"], PINS)


def test_every_room_imports_with_the_packages_of_a_phone_alone() -> None:
    """What no Android pin names is out of reach here, huggingface-hub beside tokenizers, too."""
    allowed = {*android.read_pins(android.PINS_FILE), "lorad"}
    forbidden = [
        module
        for module, owners in packages_distributions().items()
        if not allowed & {owner.lower().replace("_", "-") for owner in owners}
        and module not in {"_distutils_hack", "pkg_resources"}
    ]
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.name != "__main__.py"
    ]
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("import_without.py"))],
        input=json.dumps({"forbidden": forbidden, "modules": modules}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "huggingface_hub" in forbidden
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["lorad", "[2,", "1]"]
