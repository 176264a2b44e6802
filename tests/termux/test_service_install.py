"""`termux/service.sh`: what it puts in place, that it may be repeated, and what it takes away."""

import os
from pathlib import Path

import pytest

from tests.termux.fake_termux import BEHAVED, HANGING, FakeTermux, until

pytestmark = pytest.mark.slow


def impatient(termux: FakeTermux, seconds: float = 0.4) -> None:
    """Each call that has the limit of 5 s, and kills at its end, gets less here; no other works."""
    shorter = f'exec /usr/bin/timeout -s KILL {seconds} "$@"'
    termux.command("timeout", f'[ "$1 $2 $3" = "-s KILL 5" ] || exit 99\nshift 3\n{shorter}\n')


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and "supervise" not in path.parts
    }


def test_install_repeat_and_uninstall(busybox: FakeTermux) -> None:
    termux = busybox
    termux.command("lorad", BEHAVED)
    told = termux.install()
    assert "sv-enable lorad" in told.stdout
    assert told.stderr == ""
    assert termux.calls("termux-job-scheduler") == [
        [
            *("--job-id", "8765", "--script", f"{termux.program}/heartbeat.sh"),
            *("--period-ms", "900000", "--network", "none", "--charging", "false"),
            *("--battery-not-low", "true", "--persisted", "true"),
        ]
    ]
    installed = contents(termux.service)
    assert {name: mode for name, (mode, _) in installed.items()} == {
        "run": 0o700,
        "finish": 0o700,
        "end-left-behind": 0o700,
        "settings.sh": 0o700,
        "log/run": 0o700,
        "down": 0o600,
    }
    for path in (termux.boot, termux.program / "heartbeat.sh", termux.service / "run"):
        assert os.access(path, os.X_OK)
        assert path.read_text().startswith(f"#!{termux.prefix}/bin/sh\n")
    assert termux.service_sh("status").returncode == 3

    (termux.service / "run").write_text("an older one")
    assert "sv-enable lorad" in termux.install().stdout
    assert contents(termux.service) == installed

    termux.enable()
    until(lambda: "the daemon serves" in termux.logged())
    first = termux.pid
    assert termux.service_sh("status").returncode == 0
    termux.install()
    until(lambda: termux.logged().count("the daemon serves") == 2 and termux.pid != first)
    assert not (termux.service / "down").exists(), "it is still enabled"
    assert "ends in order" in termux.logged()

    (termux.home / "ended").unlink()
    done = termux.service_sh("uninstall")
    assert done.returncode == 0, done
    assert (termux.home / "ended").exists(), "it waited for the orderly end"
    assert termux.calls("termux-job-scheduler")[-1] == ["--cancel", "--job-id", "8765"]
    assert [line for line in termux.processes().values() if "runsvdir" not in line] == []
    assert list(termux.service.parent.iterdir()) == []
    assert not termux.boot.exists()
    assert not termux.log.parent.exists()
    assert list(termux.program.iterdir()) == []
    assert termux.service_sh("uninstall").returncode == 0
    assert termux.service_sh("status").returncode == 3


def test_what_is_not_ours_in_the_boot_folder_stays(termux: FakeTermux) -> None:
    (termux.boot.parent / "old scripts").mkdir(parents=True)
    termux.boot.write_text("echo mine\n")
    told = termux.install()
    assert "old scripts: Termux:Boot stops at it" in told.stderr
    assert "left alone" in told.stderr
    assert termux.boot.read_text() == "echo mine\n"
    assert termux.service_sh("uninstall").returncode == 0
    assert termux.boot.read_text() == "echo mine\n"


def test_a_job_scheduler_that_fails_or_hangs_stops_nothing(termux: FakeTermux) -> None:
    for script in (
        'echo "too many arguments"; exit 1\n',
        'echo "Cannot execute file: $4"\n',
        'echo "Scheduling Job 8765: x - response 0"\n',
    ):
        termux.command("termux-job-scheduler", script)
        told = termux.install().stderr
        assert "expected termux-job-scheduler to schedule the heartbeat, found that it" in told

    termux.command("termux-job-scheduler", "")
    assert termux.install().stderr == "", "what Termux:API 0.53 answers when it has done so"

    (termux.prefix / "bin/termux-job-scheduler").unlink()
    assert "pkg install termux-api" in termux.install().stderr

    impatient(termux)
    termux.command("termux-job-scheduler", HANGING)
    told = termux.install().stderr
    assert "did not answer within 5 s" in told
    assert "Killed" not in told
    assert termux.state == "down"
    assert termux.service_sh("uninstall").returncode == 0
    assert len(termux.calls("termux-job-scheduler")) == 2
    assert [line for line in termux.processes().values() if "runsvdir" not in line] == []


def test_without_termux_services_nothing_is_installed(termux: FakeTermux) -> None:
    (termux.prefix / "bin/service-daemon").unlink()
    told = termux.service_sh("install")
    assert told.returncode == 69
    assert "pkg install termux-services" in told.stderr
    assert list(termux.service.parent.iterdir()) == []


def test_a_daemon_that_will_not_end_is_killed(termux: FakeTermux) -> None:
    termux.command(
        "lorad", "trap '' TERM\necho \"the daemon $1s\"\nwhile :; do /usr/bin/sleep 0.1; done\n"
    )
    termux.install()
    termux.enable()
    until(lambda: "the daemon serves" in termux.logged())
    termux.command("sleep", "exec /usr/bin/sleep 0.001\n")
    assert termux.service_sh("uninstall").returncode == 0
    assert not termux.service.exists()
    until(lambda: not [line for line in termux.processes().values() if "runsvdir" not in line])


@pytest.mark.parametrize("word", ["", "start"])
def test_another_verb_is_refused(termux: FakeTermux, word: str) -> None:
    told = termux.service_sh(word)
    assert told.returncode == 64
    assert f"found '{word}'" in told.stderr
