"""Stand-ins for the commands of Termux that lorad calls around a training, in a $PREFIX/bin."""

import shlex
import sys
from pathlib import Path

from tests.service import battery_program
from tests.service.daemon import ROOT

LOCK, UNLOCK = "termux-wake-lock", "termux-wake-unlock"
SHOW, REMOVE = "termux-notification", "termux-notification-remove"

SCRIPT = """#!/bin/sh
here=$(dirname "$0")
name=${0##*/}
exec 8<"$here/leftover"
line=$name
for argument; do line="$line\t$argument"; done
printf '%s\\n' "$line" >>"$here/calls"
case "$(cat "$here/$name.mode")" in
  fail) echo "Error: no such service" >&2; exit 3 ;;
  hang) sleep 1000 & sleep 1000 ;;
esac
"""

# As the launcher does, it fails where it isn't told where Termux is.
LORAD = """#!/bin/sh
set -eu
test -d "$PREFIX/bin" && test -d "$HOME"
cd {root}
exec {python} -m service.cli.main "$@"
"""


class PhoneCommands:
    """The commands, what each shall do, how they were called and what they left running."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.folder = prefix / "bin"
        self.folder.mkdir(parents=True)
        (self.folder / "leftover").touch()
        for name in (LOCK, UNLOCK, SHOW, REMOVE):
            self.does(name, "ok")
            self._write(name, SCRIPT)
        words = {"root": shlex.quote(str(ROOT)), "python": shlex.quote(sys.executable)}
        self._write("lorad", LORAD.format(**words))

    def _write(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(script)
        path.chmod(0o700)

    def does(self, name: str, mode: str) -> None:
        new = self.folder / f"{name}.new"
        new.write_text(mode)
        new.replace(self.folder / f"{name}.mode")

    def find(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.exists() else None

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()

    @property
    def calls(self) -> list[list[str]]:
        """Name and arguments of each call, in order."""
        calls = self.folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line.split("\t") for line in lines]

    def of(self, *names: str) -> list[str]:
        """The names of the calls of these commands, in order."""
        return [call[0] for call in self.calls if call[0] in names]

    @property
    def order(self) -> list[str]:
        """The names of all calls, in order; changes of what a notification says are left out."""
        names = [call[0] for call in self.calls]
        return [name for before, name in zip(["", *names], names, strict=False) if name != before]

    @property
    def locks(self) -> list[str]:
        """What became of the wake lock."""
        return self.of(LOCK, UNLOCK)

    @property
    def shown(self) -> list[dict[str, str]]:
        """The options of each notification, in order; one without a value has an empty one."""
        return [_options(call[1:]) for call in self.calls if call[0] == SHOW]

    def leftovers(self) -> set[int]:
        """The processes of any call that still live."""
        return battery_program.leftovers(self.folder / "leftover")

    def running(self) -> set[int]:
        """The processes of the call that is under way."""
        return battery_program.holders(self.folder / "leftover")


def _options(arguments: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    waiting = iter(arguments)
    for argument in waiting:
        assert argument.startswith("--"), arguments
        name = argument.removeprefix("--")
        options[name] = "" if name in ("ongoing", "alert-once") else next(waiting)
    return options


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now
