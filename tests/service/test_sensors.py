"""The sensors together: who is asked by which setting, and what several threads get."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from service.home import Home
from service.sensors.power_supply import PowerSupply
from service.sensors.sensors import Sensors
from service.sensors.sources import BestBattery
from service.sensors.termux import TermuxBattery
from service.settings import Settings
from tests.service.battery_program import BatteryProgram
from tests.service.daemon import until
from tests.service.test_power_supply import Tree


@pytest.fixture
def program(tmp_path: Path) -> BatteryProgram:
    return BatteryProgram(tmp_path / "prefix/bin")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "power_supply")


def best(find: Path | None, folder: Path, timeout: float = 5) -> BestBattery:
    def clock() -> float:
        return 9.0

    return BestBattery(
        TermuxBattery(clock, find=lambda: find, timeout=timeout), PowerSupply(clock, folder), clock
    )


def test_termux_comes_first(program: BatteryProgram, tree: Tree) -> None:
    for reading in vars(best(program.path, tree.folder).read()).values():
        assert reading.value is not None
        assert reading.source == "termux-battery-status"


def test_the_kernel_tells_what_termux_does_not(program: BatteryProgram, tree: Tree) -> None:
    program.says(temperature=None, percentage=101)
    battery = best(program.path, tree.folder).read()
    assert (battery.level.value, battery.battery_temperature.value) == (64, 28.7)
    added = ", as termux-battery-status doesn't tell it"
    assert battery.level.source == f"sysfs battery/capacity{added}"
    assert battery.battery_temperature.source == f"sysfs battery/temp{added}"
    assert battery.plugged.source == "termux-battery-status"


def test_the_kernel_tells_all_where_termux_hangs(program: BatteryProgram, tree: Tree) -> None:
    program.does("hang")
    battery = best(program.path, tree.folder, timeout=0.5).read()
    assert (battery.level.value, battery.plugged.value) == (64, True)
    assert battery.plugged.source is not None
    assert battery.plugged.source.startswith("sysfs usb/online, as ")
    tree.put("battery", capacity=None)
    battery = best(program.path, tree.folder, timeout=0.5).read()
    assert battery.level.value is None
    assert battery.level.why == "termux-battery-status did not answer within 0.5 seconds"
    assert battery.level.source == "termux-battery-status"


def test_where_termux_hangs_and_the_kernel_is_dumb_the_reason_is_termux_s(
    program: BatteryProgram, tmp_path: Path
) -> None:
    program.does("fail")
    for reading in vars(best(program.path, tmp_path / "denied").read()).values():
        assert reading.value is None
        assert (
            reading.why == "termux-battery-status failed with exit code 3: Error: no such activity"
        )


def test_without_termux_the_kernel_is_asked(tree: Tree) -> None:
    assert best(None, tree.folder).read().level.source == "sysfs battery/capacity"


def test_without_either_the_reason_says_what_to_do(tmp_path: Path) -> None:
    for reading in vars(best(None, tmp_path / "none").read()).values():
        assert reading.value is None
        assert "LORAD_SENSORS=fake" in reading.why
        assert "Termux:API" in reading.why


@pytest.fixture
def termux(program: BatteryProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sensors:
    monkeypatch.setenv("PREFIX", str(program.folder.parent))
    return Sensors(Settings(sensors="termux"), Home(tmp_path))


def test_the_setting_termux_asks_nobody_else(termux: Sensors) -> None:
    readings = termux.read()
    assert readings.level.value == 91
    assert readings.skin_temperature.absent
    assert (readings.storage.value or 0) > 0
    assert (readings.memory.value or 0) > 0


def test_a_reading_keeps_its_time_and_room_does_not(
    termux: Sensors, program: BatteryProgram
) -> None:
    first = termux.read()
    second = termux.read()
    assert program.calls == 1
    assert second.level == first.level
    assert first.storage.at is not None
    assert second.storage.at is not None
    assert second.storage.at > first.storage.at


def test_threads_share_one_call(termux: Sensors, program: BatteryProgram) -> None:
    program.does("slow")
    found = []
    threads = [threading.Thread(target=lambda: found.append(termux.read())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [readings.level.value for readings in found] == [91] * 8
    assert program.calls == 1


def test_while_a_look_hangs_others_get_the_last_one(
    termux: Sensors, program: BatteryProgram
) -> None:
    program.does("hang")
    before = termux.last()
    thread = threading.Thread(target=termux.read)
    thread.start()
    until(program.running)
    start = time.monotonic()
    assert termux.last() is before
    assert termux.read_unless_busy() is before
    assert time.monotonic() - start < 0.5
    assert thread.is_alive()
    for pid in program.running():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    thread.join()
    assert termux.last() is not before
    assert termux.last().level.at is not None
    assert termux.read_unless_busy() is termux.last()


@pytest.mark.parametrize("sensors", ["auto", "sysfs"])
def test_what_this_machine_has_is_told_or_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sensors: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PREFIX", raising=False)
    readings = Sensors(Settings.model_validate({"sensors": sensors}), Home(tmp_path)).read()
    for reading in vars(readings).values():
        assert (reading.value is None) == bool(reading.why)
        assert reading.at is not None
