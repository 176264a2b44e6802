"""The shell scripts of termux/: every bats file here, and shellcheck over all of them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.repository import ROOT, tracked_files

HERE = Path(__file__).parent
SHELLS = ("dash", "busybox sh")
"""What a phone has: Termux's /bin/sh is dash, other systems' is often busybox."""


def needs(program: str) -> None:
    """Skip, and in CI as root fail, where a program of Debian's is missing."""
    if shutil.which(program):
        return
    reason = f"{program} is not installed, so the phone's shell scripts stay untested"
    if os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(reason)
    pytest.skip(reason)


def runs() -> list[tuple[str, str]]:
    """Every bats file with dash; once more with busybox where tests are tagged for every shell.

    The shell under test is $LORAD_SH.
    """
    files = sorted(HERE.glob("*.bats"))
    again = [path for path in files if "test_tags=every-shell" in path.read_text()]
    return [(path.name, "dash") for path in files] + [(path.name, "busybox sh") for path in again]


@pytest.mark.parametrize(("file", "shell"), runs())
def test_bats(file: str, shell: str) -> None:
    for program in ("bats", shell.split()[0]):
        needs(program)
    chosen = [] if shell == "dash" else ["--filter-tags", "every-shell"]
    result = subprocess.run(
        ["bats", "--tap", *chosen, file],
        cwd=HERE,
        env={**os.environ, "LORAD_SH": shell},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert "1..0" not in result.stdout, "no test was run"


def test_shellcheck() -> None:
    needs("shellcheck")
    scripts = [
        str(path)
        for path in tracked_files()
        if path.parts[0] == "termux"
        and (ROOT / path).read_bytes().startswith((b"#!", b"# shellcheck"))
    ]
    assert "termux/install.sh" in scripts
    result = subprocess.run(
        ["shellcheck", "-x", *scripts], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout
