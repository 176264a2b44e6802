"""The start after boot, and the heartbeat: what they start, and what they leave alone."""

import os
import signal

import pytest

from tests.service.daemon import holding
from tests.termux.fake_termux import BEHAVED, HANGING, FakeTermux, until
from tests.termux.test_service_install import impatient

pytestmark = pytest.mark.slow


@pytest.fixture
def running(busybox: FakeTermux) -> FakeTermux:
    """Its service runs, with a stand-in for the daemon."""
    termux = busybox
    termux.command("lorad", BEHAVED)
    termux.install()
    termux.enable()
    until(lambda: "the daemon serves" in termux.logged())
    return termux


def starts(termux: FakeTermux) -> int:
    return termux.logged().count("the daemon serves")


def test_it_revives_what_android_killed_and_nothing_else(running: FakeTermux) -> None:
    pid = running.pid
    [runsvdir] = [pid for pid, line in running.processes().items() if "/runsvdir " in line]
    os.kill(runsvdir, signal.SIGKILL)
    assert running.beat() == "runs", "by the runsv that is left"
    assert running.pid == pid
    running.kill_all()
    assert running.beat() == "was started again"
    until(lambda: starts(running) == 2)
    assert [line for line in running.processes().values() if "/runsvdir " in line]

    with holding(running.program / "heartbeat.lock"):
        assert running.beat() == "nothing", "there is one at a time"
    assert running.beat() == "runs", "runsvdir, which the last one started, hasn't kept the lock"

    running.sv("down", "lorad")
    until(lambda: running.state == "down")
    assert running.beat() == "was told to be down"
    running.kill_all()
    assert running.beat() == "was told to be down"
    assert running.processes() == {}

    (running.service / "down").touch()
    assert running.beat() == "disabled"
    (running.service / "down").unlink()
    for folder in (running.service / "supervise").iterdir():  # as `service-daemon stop` does
        folder.unlink()
    assert running.beat() == "all services were stopped"
    assert running.processes() == {}
    assert running.calls("termux-wake-lock") == []


def test_it_has_the_daemon_look_but_not_one_that_just_began(running: FakeTermux) -> None:
    begun = running.service / "begun"
    _, since, pid = begun.read_text().split()
    for what, earlier in (("daemon", 0), ("pause", 61), ("daemon", 61)):
        assert "the daemon looks" not in running.logged()
        begun.write_text(f"{what} {int(since) - earlier} {pid}\n")
        assert running.beat() == "runs"
    until(lambda: running.logged().count("the daemon looks") == 1)
    assert running.state == "run"


def test_what_hangs_is_killed_with_all_it_started(running: FakeTermux) -> None:
    running.kill_all()
    impatient(running)
    running.command("service-daemon", HANGING)
    running.command("sleep", "exec /usr/bin/sleep 0.001\n")
    assert running.beat() == "is not supervised, and service-daemon start did not help"
    assert running.calls("service-daemon") == [["start"]]
    assert running.processes() == {}


def test_boot_starts_the_enabled_ones_without_a_wake_lock(termux: FakeTermux) -> None:
    termux.command("lorad", BEHAVED)
    termux.install()
    termux.kill_all()
    for name in ("enabled", "disabled"):
        folder = termux.service.parent / name
        folder.mkdir()
        (folder / "run").write_text(f"#!{termux.prefix}/bin/sh\necho $$ > ran\nexec sleep 60\n")
        (folder / "run").chmod(0o700)
    (termux.service.parent / "disabled/down").touch()

    assert termux.run(termux.boot).returncode == 0
    assert termux.processes() == {}, "lorad is disabled: nothing is started for its sake"

    (termux.service / "down").unlink()
    assert termux.run(termux.boot).returncode == 0
    until(lambda: starts(termux) == 1 and (termux.service.parent / "enabled/ran").exists())
    assert not (termux.service.parent / "disabled/ran").exists()
    assert termux.calls("termux-wake-lock") == []

    (termux.prefix / "etc/profile.d/start-services.sh").unlink()
    told = termux.run(termux.boot)
    assert told.returncode == 69
    assert "pkg install termux-services" in told.stderr
