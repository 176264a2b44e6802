"""A stand-in for `termux-battery-status`, in a folder such as $PREFIX/bin, that tests drive."""

import json
import time
from pathlib import Path
from typing import Any

PLUGGED: dict[str, Any] = {
    "present": True,
    "health": "GOOD",
    "plugged": "PLUGGED_AC",
    "status": "CHARGING",
    "temperature": 28.5,
    "percentage": 91,
    "level": 91,
    "scale": 100,
}

# Every helper that is left behind holds the pipe and is of the program's process group. `leftover`
# is the file that all of them have open, by which they are found.
SCRIPT = """#!/bin/sh
cd "$(dirname "$0")" || exit 9
exec 8<leftover
echo call >>calls
case "$(cat mode)" in
  ok) cat status ;;
  slow) sleep 0.3; cat status ;;
  hang) exec sleep 1000 ;;
  hangs-once) if [ "$(wc -l <calls)" -gt 1 ]; then cat status; else exec sleep 1000; fi ;;
  ignores-sigterm) trap '' TERM INT HUP; sleep 1000; sleep 1000 ;;
  forks-and-hangs) (sleep 1000 & sleep 1000 & wait) & wait ;;
  answers-and-forks) cat status; sleep 1000 & ;;
  answers-and-hangs) cat status; sleep 1000 ;;
  closes-and-hangs) cat status; exec >&- 2>&-; sleep 1000 ;;
  flood) while :; do head -c 100000 /dev/zero; done ;;
  complains) cat status; while :; do head -c 100000 /dev/zero >&2; done ;;
  empty) ;;
  truncated) head -c 40 status ;;
  fail) echo "Error: no such activity" >&2; exit 3 ;;
  fails-with-output) cat status; exit 1 ;;
  killed) cat status; kill -9 $$ ;;
  reads) cat; cat status ;;
esac
"""


class BatteryProgram:
    """The program, what it shall do, how often it was called and what it left running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.path = folder / "termux-battery-status"
        (folder / "leftover").touch()
        self.path.write_text(SCRIPT)
        self.path.chmod(0o700)
        self.does("ok")
        self.says()

    def does(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    def says(self, **changes: Any) -> None:
        (self.folder / "status").write_text(json.dumps(PLUGGED | changes, indent=2) + "\n")

    @property
    def calls(self) -> int:
        calls = self.folder / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    def leftovers(self) -> set[int]:
        """The processes of any call that still live."""
        return leftovers(self.folder / "leftover")

    def running(self) -> set[int]:
        """The processes of the call that is under way."""
        return holders(self.folder / "leftover")


def leftovers(file: Path) -> set[int]:
    """The processes that have the file open and don't end."""
    deadline = time.monotonic() + 2
    while (left := holders(file)) and time.monotonic() < deadline:
        time.sleep(0.02)  # a killed process holds its files for another instant
    return left


def holders(file: Path) -> set[int]:
    """The processes that have the file open."""
    mark = file.stat()
    found = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            for descriptor in (process / "fd").iterdir():
                status = descriptor.stat()
                if (status.st_dev, status.st_ino) == (mark.st_dev, mark.st_ino):
                    found.add(int(process.name))
        except OSError:
            continue
    return found
