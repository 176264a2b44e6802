"""Who holds a lock of flock(2), as far as the system tells."""

from __future__ import annotations

import os
from pathlib import Path

LOCKS = Path("/proc/locks")


def lock_holder(path: Path, *, locks: Path = LOCKS) -> str:
    """The process that has locked the file, in words."""
    pid = _pid(path, locks)
    if pid is None:
        return "another process"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}"
    arguments = [argument.decode(errors="replace") for argument in command]
    if "-m" in arguments[:-1]:
        return f"process {pid} ({arguments[arguments.index('-m') + 1]})"
    return f"process {pid}"


def _pid(path: Path, locks: Path) -> int | None:
    """From lines such as `1: FLOCK  ADVISORY  WRITE 708 08:01:1234 0 EOF`."""
    try:
        status = path.stat()
        lines = locks.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == place and words[4].isdigit():
            return int(words[4])
    return None
