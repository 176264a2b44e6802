"""Pacing never lets a simulated phone above the hard limit, and wins against on and off."""

import dataclasses
import json
import statistics
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from bench.thermal import grid
from bench.thermal_night import LIMITS, ON_OFF_LIMITS, Gated, spend
from bench.thermal_phone import IDLE_WATTS, Make, Phone
from tests.house.repository import ROOT

WARM = Make(30, 8, 120)


def test_the_phone_ends_where_heat_in_is_heat_out() -> None:
    phone = Phone(Make(20, 5, 120))
    for _ in range(8 * 3600):
        phone.second(0.5)
    expected = 20 + 5 * (0.5 * 4.5 + IDLE_WATTS)
    assert phone.case == pytest.approx(expected, abs=0.01)
    assert phone.battery == pytest.approx(expected, abs=0.01)
    told = phone.readings()
    assert told.battery_temperature.value == 32, "of 32.25"
    assert told.battery_temperature.at == 8 * 3600
    assert told.full.value


def test_the_phone_keeps_the_heat_it_is_given() -> None:
    phone = Phone(Make(20, 1e12, 200))
    for _ in range(600):
        phone.second(1)
    kept = 200 * (0.65 * (phone.case - 20) + 0.35 * (phone.battery - 20))
    assert kept == pytest.approx(600 * (4.5 + IDLE_WATTS + 0.25))
    assert phone.case > phone.battery > 20


def test_the_sensors_lag_by_the_time_that_is_said() -> None:
    phone = Phone(Make(20, 1e12, 1e12, lag_seconds=30, quantum=0))
    phone.battery = phone.case = 30
    for _ in range(30):
        phone.second(0)
    assert phone.readings().battery_temperature.value == pytest.approx(26.4, abs=0.1)


def test_never_above_hard_cooler_than_on_off_and_no_slower() -> None:
    ratios = []
    for make in (make for make in grid() if make.ambient < 38):
        ours = spend(make, Gated(LIMITS, paced=True), hours=4)
        gates_alone = spend(make, Gated(ON_OFF_LIMITS, paced=False), hours=4)
        assert ours.seconds_above_hard == 0
        assert ours.hottest < gates_alone.hottest
        assert ours.pauses == 0 < gates_alone.pauses
        ratios.append(ours.steps / gates_alone.steps)
    assert min(ratios) >= 1
    assert statistics.median(ratios) >= 1.1


@pytest.mark.parametrize("watts", [4.5 * 0.7, 4.5 * 1.3])
@pytest.mark.parametrize("lag", [15.0, 60.0])
def test_nor_with_other_heat_and_slower_sensors(watts: float, lag: float) -> None:
    for make in (Make(20, 8, 120), WARM, Make(35, 8, 120)):
        other = dataclasses.replace(make, watts=watts, lag_seconds=lag)
        for quantum in (1.0, 0.1):
            night = spend(
                dataclasses.replace(other, quantum=quantum), Gated(LIMITS, paced=True), hours=2
            )
            assert night.seconds_above_hard == 0, (make, night.hottest)
            assert night.steps > 0


def test_without_pacing_the_same_limits_are_not_enough() -> None:
    """Else the test above would tell nothing of pacing."""
    assert spend(WARM, Gated(LIMITS, paced=False), hours=2).seconds_above_hard > 0


@pytest.mark.slow
def test_the_bench_as_a_command(tmp_path: Path) -> None:
    picture = tmp_path / "thermal.png"
    done = subprocess.run(
        [sys.executable, "-m", "bench.thermal", "--json", "--plot", str(picture)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["seconds_above_hard"] == found["seconds_above_hard_on_off"] == 0
    assert found["steps_ratio_vs_on_off_min"] >= 1
    assert found["steps_ratio_vs_on_off"] >= 1.1
    assert len(found["cells"]) == 12
    without = [cell["ambient"] for cell in found["cells"] if cell["on_off"]["steps_per_hour"] == 0]
    assert without == [38] * found["cells_without_a_step_on_off"] == [38] * 4
    for cell in found["cells"]:
        assert cell["ours"]["hottest"] <= cell["on_off"]["hottest"] < 43
        assert cell["ours"]["steps_per_hour"] == pytest.approx(3600 * cell["ours"]["duty"], abs=3)
    content = picture.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width > 800
    assert height > 400
