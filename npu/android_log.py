"""What a process, and the libraries in it, wrote into Android's log.

FastRPC and QNN say there, and not on standard error, why the DSP refused them.
"""

from __future__ import annotations

import shutil

from npu.system_program import program_output

_SECONDS = 5.0
_MOST_CHARACTERS = 64_000
_PROGRAM = "/system/bin/logcat"


def android_log(pid: int) -> str:
    """The latest lines of the process `pid`, of this user; empty where there is no such log.

    Android lets an app read its own processes' lines.
    """
    logcat = shutil.which("logcat") or shutil.which(_PROGRAM)
    if logcat is None:
        return ""
    lines = program_output([logcat, "-d", "-v", "brief", f"--pid={pid}"], _SECONDS)
    return lines[-_MOST_CHARACTERS:]
