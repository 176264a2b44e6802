"""What a program of the system says, as Android's getprop, within a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from npu.library_path import own_environment

_KILLED_SECONDS = 1.0


def program_output(command: list[str | Path], seconds: float) -> str:
    """What it prints; empty if it can't be started or takes longer.

    It gets a process group of its own, which ends with it, and none of our library paths: with
    /vendor/lib64 before their own folders, programs of Termux don't start.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            errors="replace",
            env=own_environment(os.environ),
        )
    except OSError:
        return ""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_KILLED_SECONDS)
        return ""
    return output
