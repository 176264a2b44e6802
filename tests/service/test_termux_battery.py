"""`termux-battery-status` as a program: it hangs, forks, floods and fails, and is called again."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import bounded_program
from service.sensors.termux import TermuxBattery, find_program
from tests.service.battery_program import BatteryProgram
from tests.service.daemon import until

SHORT = 1.0
"""For what hangs anyhow; what answers gets the real time, on a machine that may be busy."""


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def program(tmp_path: Path) -> Iterator[BatteryProgram]:
    program = BatteryProgram(tmp_path / "bin")
    yield program
    for pid in program.running():  # of a test that failed
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def battery(program: BatteryProgram, clock: Clock) -> TermuxBattery:
    return TermuxBattery(clock, find=lambda: program.path)


@pytest.fixture
def hanging(program: BatteryProgram, clock: Clock) -> TermuxBattery:
    return TermuxBattery(clock, find=lambda: program.path, timeout=SHORT)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def zombies() -> set[int]:
    mine = set()
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            if "\nState:\tZ" in Path(f"/proc/{child}/status").read_text():
                mine.add(int(child))
    return mine


@pytest.mark.parametrize("mode", ["ok", "slow", "answers-and-forks", "reads"])
def test_what_it_says(battery: TermuxBattery, program: BatteryProgram, mode: str) -> None:
    program.does(mode)
    found = battery.read()
    assert found.level.value == 91
    assert found.plugged.value is True
    assert found.full.value is False
    assert found.battery_temperature.value == 28.5
    assert found.level.source == "termux-battery-status"
    assert found.level.at == 1000
    assert not program.leftovers()
    assert not zombies()


def check_silence(battery: TermuxBattery, program: BatteryProgram, reason: str) -> None:
    before = descriptors()
    found = battery.read()
    for reading in vars(found).values():
        assert reading.value is None
        assert reading.why is not None
        assert reading.why.startswith(f"termux-battery-status {reason}")
        assert reading.source == "termux-battery-status"
        assert not reading.absent
    assert not program.leftovers()
    assert not zombies()
    assert descriptors() == before


@pytest.mark.parametrize(
    "mode",
    ["hang", "ignores-sigterm", "forks-and-hangs", "answers-and-hangs", "closes-and-hangs"],
)
def test_what_does_not_end_is_killed_with_all_it_forked(
    hanging: TermuxBattery, program: BatteryProgram, mode: str
) -> None:
    program.does(mode)
    start = time.monotonic()
    check_silence(hanging, program, "did not answer within 1 seconds")
    assert program.calls == 2
    assert time.monotonic() - start < 2 * SHORT + 30  # with the search for what is left


def test_a_call_that_hangs_is_tried_once_more(
    hanging: TermuxBattery, program: BatteryProgram
) -> None:
    program.does("hangs-once")
    assert hanging.read().level.value == 91
    assert program.calls == 2
    assert not program.leftovers()


def test_where_calls_hang_in_a_row_each_is_tried_once(
    hanging: TermuxBattery, program: BatteryProgram, clock: Clock
) -> None:
    program.does("hang")
    hanging.read()
    clock.now += 1000
    hanging.read()
    assert program.calls == 3


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("flood", "wrote more than 65536 bytes"),
        ("complains", "wrote more than 65536 bytes"),
        ("empty", "printed nothing"),
        ("truncated", "printed something that isn't JSON, or is cut off"),
        ("fail", "failed with exit code 3: Error: no such activity"),
        ("fails-with-output", "failed with exit code 1"),
        ("killed", "failed with exit code 137"),
    ],
)
def test_why_it_says_nothing(
    battery: TermuxBattery, program: BatteryProgram, mode: str, reason: str
) -> None:
    program.does(mode)
    check_silence(battery, program, reason)


def test_it_is_asked_once_a_minute(
    battery: TermuxBattery, program: BatteryProgram, clock: Clock
) -> None:
    battery.read()
    program.says(percentage=50)
    for _ in range(2):  # looks every half minute, the second of them a little early
        assert (battery.read().level.value, battery.read().level.at) == (91, 1000)
        assert program.calls == 1
        clock.now += 29.75
    assert (battery.read().level.value, battery.read().level.at) == (50, 1059.5)
    assert program.calls == 2


def test_after_failures_it_is_asked_ever_less_and_after_an_answer_as_before(
    battery: TermuxBattery, program: BatteryProgram, clock: Clock
) -> None:
    program.does("fail")
    waits = []
    for _ in range(7):
        battery.read()
        calls, start = program.calls, clock.now
        while program.calls == calls:
            clock.now += 10
            found = battery.read()
        waits.append(clock.now - start)
    assert waits == [20, 20, 120, 300, 900, 900, 900]
    assert found.level.why is not None
    assert "8 times in a row; it is asked again 15 minutes later" in found.level.why
    program.does("ok")
    clock.now += 900
    assert battery.read().level.value == 91
    program.does("fail")
    clock.now += 60
    again = battery.read()
    assert again.level.value is None  # what it said before is not held against the silence
    assert (
        again.level.why == "termux-battery-status failed with exit code 3: Error: no such activity"
    )


def test_an_answer_without_a_battery_is_no_failure(
    battery: TermuxBattery, program: BatteryProgram, clock: Clock
) -> None:
    program.says(present=False)
    for number in range(1, 6):
        assert battery.read().level.value is None
        assert program.calls == number
        clock.now += 61


def test_a_program_that_is_missing_or_cannot_run_is_said(tmp_path: Path, clock: Clock) -> None:
    missing = TermuxBattery(clock, find=lambda: None).read()
    assert missing.plugged.why is not None
    assert "not installed" in missing.plugged.why
    gone = TermuxBattery(clock, find=lambda: tmp_path / "gone").read()
    assert gone.plugged.why is not None
    assert "failed with exit code 127: " in gone.plugged.why
    assert "not found" in gone.plugged.why
    (tmp_path / "text").write_text("no program")
    text = TermuxBattery(clock, find=lambda: tmp_path / "text").read()
    assert text.plugged.why is not None
    assert "failed with exit code 126: " in text.plugged.why


def test_a_program_that_is_installed_later_is_found(program: BatteryProgram, clock: Clock) -> None:
    found: list[Path | None] = [None]
    battery = TermuxBattery(clock, find=lambda: found[0])
    assert (battery.installed, battery.read().level.value) == (False, None)
    found[0] = program.path
    assert (battery.installed, battery.read().level.value) == (True, 91)


def test_where_it_is_looked_for(
    program: BatteryProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PREFIX", raising=False)
    assert find_program() is None
    monkeypatch.setenv("PREFIX", str(tmp_path))
    assert find_program() == program.path
    monkeypatch.delenv("PREFIX")
    monkeypatch.setenv("PATH", f"{tmp_path}:{program.folder}")
    assert find_program() == program.path
    program.path.chmod(0o600)
    assert find_program() is None


def test_a_call_that_cannot_be_ended_is_not_followed_by_another(
    hanging: TermuxBattery, program: BatteryProgram, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that hangs in the kernel outlives SIGKILL; here the signal is withheld."""
    program.does("hang")
    groups: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(bounded_program, "_kill_group", groups.append)
        patch.setattr(bounded_program._Pipes, "__exit__", lambda *_: None)
        hanging.read()
    assert program.running()
    clock.now += 20
    found = hanging.read()
    assert found.level.why is not None
    assert "was killed and still hasn't ended" in found.level.why
    assert program.calls == 1
    os.killpg(groups[0], signal.SIGKILL)
    assert not program.leftovers()
    program.does("ok")
    clock.now += 20
    assert hanging.read().level.value == 91
    assert not zombies()


def test_it_does_not_outlive_a_daemon_that_is_killed(program: BatteryProgram) -> None:
    program.does("forks-and-hangs")
    code = "from service.sensors.termux import TermuxBattery; TermuxBattery(lambda: 0.0).read()"
    path = f"{program.folder}:{os.environ['PATH']}"
    asker = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PATH": path})
    until(lambda: len(program.running()) >= 4)
    asker.kill()
    asker.wait()
    assert not program.leftovers()


def test_many_hangs_leave_nothing(program: BatteryProgram, clock: Clock) -> None:
    battery = TermuxBattery(clock, find=lambda: program.path, timeout=0.3)
    program.does("forks-and-hangs")
    before = (descriptors(), threading.active_count())
    for _ in range(8):
        battery.read()
        clock.now += 1000
    assert program.calls > 0  # on a busy machine some are killed before they begin
    assert not program.leftovers()
    assert not zombies()
    assert (descriptors(), threading.active_count()) == before
