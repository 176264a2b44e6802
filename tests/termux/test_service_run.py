"""`run` and `finish` by themselves, in both shells: settings, refusals, pauses."""

import shutil
import subprocess
import time

import pytest

from tests.termux.fake_termux import TERMUX, FakeTermux

SAY_SETTINGS = 'echo "launched with $*"; env | grep -E "^(LORAD_|TZ=)"; umask'


class Turn:
    """A service's folder without runsv."""

    def __init__(self, termux: FakeTermux) -> None:
        self.termux = termux
        self.folder = termux.service
        self.folder.mkdir(parents=True)
        for name in ("run", "finish", "end-left-behind", "settings.sh"):
            shutil.copy(TERMUX / "service" / name, self.folder)
        (self.folder / "supervise").mkdir()
        self.stat("finish")
        termux.command("lorad", SAY_SETTINGS)

    def stat(self, words: str) -> None:
        (self.folder / "supervise/stat").write_text(f"{words}\n")

    def run(self) -> subprocess.CompletedProcess[str]:
        return self.termux.run(self.termux.prefix / "bin/sh", "run", cwd=self.folder)

    def finish(self, code: int, status: int = 0) -> str:
        done = self.termux.run(
            self.termux.prefix / "bin/sh", "finish", str(code), str(status), cwd=self.folder
        )
        assert done.returncode == 0, done
        return done.stdout

    def crash(self) -> None:
        self.run()
        self.finish(1)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()


@pytest.fixture
def turn(termux_of_shell: FakeTermux) -> Turn:
    return Turn(termux_of_shell)


def test_settings_reach_the_daemon_as_they_are_written(turn: Turn) -> None:
    turn.termux.settings(
        "# lorad's settings",
        "",
        "LORAD_HOME=/somewhere/my data",
        "  export LORAD_LOG='json'  ",
        'LORAD_ENGINE="a \\n & b; c | d"',
        "LORAD_SOC=",
        "TZ=Europe/Berlin\r",
        "LORAD_THREADS=a=b",
        'LORAD_SOCKET="~/my socket"',
        "LORAD_FORM=$HOME/x",
        'LORAD_NICE="',
    )
    done = turn.run()
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "launched with serve"
    assert set(done.stdout.splitlines()[1:]) == {
        "LORAD_HOME=/somewhere/my data",
        "LORAD_LOG=json",
        "LORAD_ENGINE=a \\n & b; c | d",
        "LORAD_SOC=",
        "TZ=Europe/Berlin",
        "LORAD_THREADS=a=b",
        f"LORAD_SOCKET={turn.termux.home}/my socket",
        f"LORAD_FORM={turn.termux.home}/x",
        'LORAD_NICE="',
        "0077",
    }


def test_a_last_line_without_its_end_counts(turn: Turn) -> None:
    turn.termux.settings()
    (turn.termux.home / ".config/lorad/env").write_text("LORAD_PORT=1\nLORAD_NICE=2")
    assert "LORAD_NICE=2" in turn.run().stdout.splitlines()


@pytest.mark.parametrize(
    "line",
    [
        "touch {there}",
        "LORAD_HOME=$(touch {there})",
        "LORAD_HOME=`touch {there}`",
        "$(touch {there})=1",
        "LORAD_HOME=$PREFIX/x",
        "LORAD_HOME=~someone/x",
        "HOME OF LORAD=1",
        "1LORAD=1",
        "number=3",
        "; touch {there}",
    ],
)
def test_a_broken_line_is_named_and_not_run(turn: Turn, line: str) -> None:
    there = turn.termux.home / "there"
    turn.termux.settings("LORAD_PORT=1", line.format(there=there), "LORAD_NICE=1")
    done = turn.run()
    assert done.returncode == 78
    assert "in line 2;" in done.stdout
    assert "sv up lorad" in done.stdout
    assert "launched" not in done.stdout
    assert "touch" not in done.stdout, "what a line says may be private"
    assert not there.exists()


def test_without_the_launcher_it_says_what_to_do(turn: Turn) -> None:
    (turn.termux.prefix / "bin/lorad").unlink()
    done = turn.run()
    assert done.returncode == 69
    assert "install.sh" in done.stdout


@pytest.mark.parametrize("code", [2, 69, 78, 126, 127])
def test_what_no_new_start_can_help_takes_the_service_down(turn: Turn, code: int) -> None:
    turn.termux.command("sv", 'echo "$@" > "$PREFIX/sv-called"; echo "want down" > supervise/stat')
    turn.run()
    assert "sv up lorad" in turn.finish(code)
    assert turn.has("gave-up")
    assert (turn.termux.prefix / "sv-called").read_text() == f"down {turn.folder}\n"
    turn.run()
    assert not turn.has("gave-up"), "the next turn is a new try"


def test_crashes_are_paused_for_longer_and_longer(turn: Turn) -> None:
    turn.termux.command("sleep", 'echo "slept $1"')
    pauses = []
    for _ in range(12):
        turn.crash()
        done = turn.run()
        slept = [line for line in done.stdout.splitlines() if line.startswith("slept")]
        pauses.append(int(slept[0].split()[1]) if slept else 0)
        if slept:
            assert "launched" not in done.stdout
            turn.finish(0)
            # The pause is over, the count goes on.
            (turn.folder / "crash-count").write_text(f"{len(pauses)} 0\n")
    exact = [0, 5, 10, 20, 40, 80, 160, 320, 640, 900, 900, 900]
    assert all(wanted - 2 <= pause <= wanted for pause, wanted in zip(pauses, exact, strict=True))


@pytest.mark.parametrize("kept", ["", "x y", "7", "7 y", "-3 0", "99999999999999 1"])
def test_a_damaged_count_is_none(turn: Turn, kept: str) -> None:
    (turn.folder / "crash-count").write_text(kept)
    assert "launched with serve" in turn.run().stdout


def test_a_count_of_before_a_reboot_or_from_the_future_stops_nothing(turn: Turn) -> None:
    for ended in (time.time() - 86400, time.time() + 86400):
        (turn.folder / "crash-count").write_text(f"12 {int(ended)}\n")
        assert "launched with serve" in turn.run().stdout


def test_a_daemon_that_lived_is_no_crash(turn: Turn) -> None:
    turn.crash()
    (turn.folder / "begun").write_text(f"daemon {int(time.time()) - 61} 1\n")
    turn.finish(-1, 9)
    assert not turn.has("crash-count")


@pytest.mark.parametrize("code", [0, 1, 137])
def test_any_end_within_a_minute_counts(turn: Turn, code: int) -> None:
    turn.run()
    turn.finish(code)
    assert (turn.folder / "crash-count").read_text().startswith("1 ")


def test_an_end_of_which_no_beginning_is_known_counts(turn: Turn) -> None:
    (turn.folder / "begun").write_text("")  # as a full disk leaves it
    turn.finish(1)
    assert (turn.folder / "crash-count").read_text().startswith("1 ")


def test_on_a_disk_where_nothing_can_be_counted_it_pauses_all_the_same(turn: Turn) -> None:
    turn.termux.command("sleep", 'echo "slept $1"')
    (turn.folder / "crash-count").mkdir()
    turn.run()
    assert "slept 60" in turn.finish(1)


def test_what_was_asked_for_is_no_crash(turn: Turn) -> None:
    turn.crash()
    turn.run()
    turn.stat("finish, want down")
    turn.finish(1)
    assert not turn.has("crash-count")


def test_a_pause_ends_for_who_restarts_but_not_for_a_kill(turn: Turn) -> None:
    turn.termux.command("sleep", "exit 0")
    (turn.folder / "crash-count").write_text(f"9 {int(time.time())}\n")
    turn.run()
    turn.finish(-1, 9)
    assert turn.has("crash-count")
    turn.finish(-1, 15)
    assert not turn.has("crash-count")
