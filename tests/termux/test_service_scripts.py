"""The scripts of termux/: shellcheck, and both shells can read them."""

import subprocess

import pytest

from tests.house.repository import ROOT, text_of, tracked_files
from tests.termux.fake_termux import SHELLS, need_programs

SCRIPTS = [
    path
    for path in tracked_files()
    if path.parts[0] == "termux" and text_of(path).startswith("#!") and "/sh\n" in text_of(path)
]


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 7


def test_shellcheck_finds_nothing() -> None:
    need_programs()
    done = subprocess.run(
        ["shellcheck", "--shell=sh", *map(str, SCRIPTS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_each_shell_reads_it(script: str) -> None:
    need_programs()
    for command in (["dash"], ["busybox", "sh"]):
        subprocess.run([*command, "-n", str(ROOT / script)], check=True)
    assert set(SHELLS) == {"dash", "busybox"}
