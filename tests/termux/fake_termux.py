"""Termux's folders and commands in a temporary folder, with Debian's real runit in them.

What runs in it can be told from everything else on the machine by ``PREFIX`` in its environment.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TERMUX = ROOT / "termux"
SHELLS = {"dash": "dash", "busybox": "busybox"}
NEEDED = ("runsvdir", "sv", "svlogd", "chpst", "start-stop-daemon", "dash", "busybox")
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

# Written after what termux-services 0.13 does; the file names are Termux's.
SERVICE_DAEMON = """\
[ "$1" = start ] || exit 1
mkdir -p "$PREFIX/var/run"
start-stop-daemon --start --background --chdir "$PREFIX" \\
    --make-pidfile --pidfile "$PREFIX/var/run/service-daemon.pid" \\
    --exec "$PREFIX/bin/runsvdir" -- "$SVDIR"
"""
START_SERVICES = """\
export SVDIR=$PREFIX/var/service
export LOGDIR=$PREFIX/var/log
(service-daemon start > /dev/null 2>&1 &)
"""
SV_ENABLE = """\
rm -f "$SVDIR/$1/down"
sv up "$1"
"""
SV_DISABLE = """\
touch "$SVDIR/$1/down"
sv down "$1"
"""
RECORDING = """\
printf '%s' "${0##*/}" >> "$PREFIX/calls"
for argument in "$@"; do printf '\\t%s' "$argument" >> "$PREFIX/calls"; done
echo >> "$PREFIX/calls"
"""
# A launcher and daemon in one that takes a moment for its orderly end.
BEHAVED = """\
trap 'sleep 0.5; echo "ends in order"; touch "$HOME/ended"; exit 0' TERM
trap 'echo "the daemon looks"' USR1
echo "the daemon $1s as $$"
while :; do sleep 0.1; done
"""
# Hangs as Termux's API does, with a child that heeds no polite signal.
HANGING = (
    RECORDING
    + """\
sh -c 'trap "" TERM HUP INT; while :; do sleep 0.1; done' &
while :; do sleep 0.1; done
"""
)


def need_programs() -> None:
    """Skip, saying so, where a program is missing; in CI as root that is a failure."""
    missing = [name for name in NEEDED if shutil.which(name, path=SYSTEM_PATH) is None]
    if not missing:
        return
    words = f"not tested: apt-get install runit busybox would bring {missing}"
    if os.environ.get("CI") == "true" and os.geteuid() == 0:
        pytest.fail(words)
    pytest.skip(words)


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait for it; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it didn't come about in time"
        time.sleep(0.02)
    return value


class FakeTermux:
    """A phone's Termux: ``prefix``, ``home``, and the commands in ``prefix/bin``."""

    def __init__(self, root: Path, shell: str = "dash") -> None:
        """With ``shell`` as its sh; the home's path has a space."""
        self.prefix = root / "usr"
        self.home = root / "home of mine"
        self.service = self.prefix / "var/service/lorad"
        self.log = self.prefix / "var/log/sv/lorad/current"
        self.program = self.home / ".local/lib/lorad"
        self.boot = self.home / ".termux/boot/lorad"
        for folder in ("bin", "etc/profile.d", "var/service", "var/log", "tmp"):
            (self.prefix / folder).mkdir(parents=True)
        self.home.mkdir()
        for name in ("runsvdir", "runsv", "sv", "svlogd", "chpst"):
            self.link(name, name)
        self.link("sh", SHELLS[shell])
        self.command("service-daemon", SERVICE_DAEMON)
        self.command("sv-enable", SV_ENABLE)
        self.command("sv-disable", SV_DISABLE)
        for name in ("termux-job-scheduler", "termux-wake-lock"):
            self.command(name, RECORDING)
        (self.prefix / "etc/profile.d/start-services.sh").write_text(START_SERVICES)

    def link(self, name: str, program: str) -> None:
        """Have one of the machine's programs as a command."""
        found = shutil.which(program, path=SYSTEM_PATH)
        assert found is not None
        (self.prefix / "bin" / name).symlink_to(found)

    def command(self, name: str, script: str) -> None:
        """Have this script as a command."""
        path = self.prefix / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{self.prefix}/bin/sh\n{script}")
        path.chmod(0o700)

    def launcher(self) -> None:
        """Have the real one as `lorad`; pkg's Python is the one that runs this."""
        self.command("lorad", (TERMUX / "launcher.sh").read_text())
        (self.prefix / "bin/python3").symlink_to(sys.executable)

    def settings(self, *lines: str) -> None:
        """The lines of the service's settings."""
        path = self.home / ".config/lorad/env"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    @property
    def environment(self) -> dict[str, str]:
        """What Termux gives to a program; SVDIR and LOGDIR only a login shell has."""
        return {
            "PREFIX": str(self.prefix),
            "HOME": str(self.home),
            "TMPDIR": str(self.prefix / "tmp"),
            "PATH": f"{self.prefix}/bin:{SYSTEM_PATH}",
        }

    def run(
        self,
        *command: str | Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        seconds: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it. What it starts would keep a pipe open: output goes to files."""
        out, err = (self.prefix / "tmp" / name for name in ("out", "err"))
        with out.open("w") as output, err.open("w") as errors:
            done = subprocess.run(
                [str(word) for word in command],
                env=self.environment | dict(environment or {}),
                cwd=cwd or self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                timeout=seconds,
                check=False,
            )
        return subprocess.CompletedProcess(
            command, done.returncode, out.read_text(), err.read_text()
        )

    def service_sh(self, verb: str) -> subprocess.CompletedProcess[str]:
        """`sh termux/service.sh VERB`."""
        return self.run(self.prefix / "bin/sh", TERMUX / "service.sh", verb)

    def install(self) -> subprocess.CompletedProcess[str]:
        """The same, and it has to go well."""
        done = self.service_sh("install")
        assert done.returncode == 0, done
        return done

    def sv(self, *words: str) -> str:
        """What `sv` answers in a session of Termux."""
        return self.run("sv", *words, environment={"SVDIR": str(self.service.parent)}).stdout

    def enable(self) -> None:
        """`sv-enable lorad` in a session of Termux."""
        done = self.run("sv-enable", "lorad", environment={"SVDIR": str(self.service.parent)})
        assert done.returncode == 0, done

    def beat(self) -> str:
        """One heartbeat, as the job scheduler starts it; what it did."""
        last = self.program / "heartbeat.last"
        last.unlink(missing_ok=True)
        self.run(self.program / "heartbeat.sh")
        return last.read_text().split(" ", 1)[1].strip() if last.exists() else "nothing"

    @property
    def state(self) -> str:
        """The first word of `sv status lorad`."""
        return self.sv("status", "lorad").split(":")[0]

    @property
    def pid(self) -> int:
        """The process of the service, 0 if there is none."""
        try:
            return int((self.service / "supervise/pid").read_text() or 0)
        except FileNotFoundError:
            return 0

    def logged(self) -> str:
        """The log, so far: svlogd begins a new file whenever it was killed."""
        older = sorted(path for path in self.log.parent.glob("@*"))
        files = [*older, self.log] if self.log.exists() else older
        return "".join(path.read_text() for path in files)

    def calls(self, name: str) -> list[list[str]]:
        """The arguments of each call of a recording command."""
        path = self.prefix / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [words[1:] for line in lines if (words := line.split("\t"))[0] == name]

    def processes(self) -> dict[int, str]:
        """What runs in it, with its command line; no zombies."""
        mark = f"PREFIX={self.prefix}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(folder.name)] = line.strip()
        return found

    def pids(self, word: str) -> list[int]:
        """The processes that have this word in their command line."""
        return [pid for pid, line in self.processes().items() if word in line.split(" ")]

    def kill_all(self) -> None:
        """SIGKILL to everything in it, as Android does it, until nothing is left."""
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
