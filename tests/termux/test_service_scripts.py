"""The scripts of the service: both shells can read each of them; `test_bats.py` asks shellcheck."""

import subprocess

import pytest

from tests.termux.fake_termux import TERMUX, need_programs

SCRIPTS = [TERMUX / "service.sh", *sorted((TERMUX / "service").iterdir())]


@pytest.mark.parametrize("shell", ["dash", "busybox sh"])
def test_the_shell_reads_each(shell: str) -> None:
    need_programs()
    for script in SCRIPTS:
        subprocess.run([*shell.split(), "-n", str(script)], check=True)
