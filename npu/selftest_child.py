"""The self-test in a process of its own: native code may crash or hang there and harm nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npu.android_log import android_log
from npu.child import child_command, child_environment
from npu.library_path import LibraryPath

_LOOK_SECONDS = 0.2
_KILLED_SECONDS = 5.0
_MOST_CHARACTERS = 4000


@dataclass(frozen=True)
class SelfTestEnd:
    """How a self-test's process ended."""

    code: int | None
    """Its exit code, negative: the signal that ended it; None: it lives on, killed as it was."""
    report: dict[str, Any] | None
    """What it printed, if that was a whole report."""
    stderr: str
    """The end of what it and its libraries said."""
    seconds: float
    timed_out: bool = False
    stopped: bool = False
    """It was killed because `stop` said so."""
    log: str = ""
    """The end of what they wrote into Android's log, if it did not pass."""


def run_selftest_child(
    engine: str,
    form: str,
    *,
    seconds: float,
    soc: str | None = None,
    path: LibraryPath | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> SelfTestEnd:
    """Run `python -m npu.selftest` on one engine and form, for at most so many seconds.

    `path` is where it looks for the user's libraries.

    Its session and process group are its own. It gets nothing of ours: no descriptor but its pipes,
    none of lorad's settings; and it dies with the calling thread. Raises OSError if it can't be
    started.
    """
    asked = ["--engine", engine, "--form", form, *([] if soc is None else ["--soc", soc])]
    began = time.monotonic()
    process = subprocess.Popen(
        child_command("npu.selftest", *asked),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        errors="replace",
        env=child_environment(path),
    )
    timed_out = stopped = False
    try:
        while True:
            try:
                stdout, stderr = process.communicate(timeout=_LOOK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                stopped = stop()
                timed_out = time.monotonic() - began >= seconds
                if stopped or timed_out:
                    stdout, stderr = _kill(process)
                    break
    except BaseException:
        _kill(process)
        raise
    report = _report(stdout)
    passed = report is not None and report["passed"]
    return SelfTestEnd(
        code=process.returncode,
        report=report,
        stderr=stderr[-_MOST_CHARACTERS:],
        seconds=time.monotonic() - began,
        timed_out=timed_out and not stopped,
        stopped=stopped,
        log="" if passed or stopped else android_log(process.pid),
    )


def _kill(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End it and whatever it started; what it had said. One that waits in the kernel lives on."""
    if process.returncode is None:  # not reaped: the id is still its own
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=_KILLED_SECONDS)
    except subprocess.TimeoutExpired:
        return "", ""


def _report(stdout: str) -> dict[str, Any] | None:
    try:
        report = json.loads(stdout)
    except ValueError:
        return None
    return report if isinstance(report, dict) and type(report.get("passed")) is bool else None
