"""The file that says what the sensors read."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from service import device
from service.home import Home
from service.sensors.readings import Readings
from service.sensors.sensors import Sensors
from service.settings import Settings

NAMES = [field.name for field in fields(Readings)]


@pytest.fixture
def sensors(tmp_path: Path) -> Sensors:
    return Sensors(Settings(sensors="fake"), Home(tmp_path))


def values(readings: Readings) -> dict[str, Any]:
    return {name: getattr(readings, name).value for name in NAMES}


def test_without_the_file_all_is_well(sensors: Sensors, tmp_path: Path) -> None:
    readings = sensors.read()
    found = values(readings)
    room = device.storage(tmp_path)
    assert room.free_bytes is not None
    assert room.total_bytes is not None
    assert found.pop("storage") == pytest.approx(room.free_bytes, abs=room.total_bytes / 100)
    assert 0 < found.pop("memory") < (device.memory().total_bytes or 0)
    assert found == {
        "plugged": True,
        "full": False,
        "level": 100,
        "battery_temperature": 25,
        "skin_temperature": None,
    }
    assert readings.skin_temperature.absent
    assert [name for name in NAMES if getattr(readings, name).absent] == ["skin_temperature"]


def test_the_file_is_read_at_every_look(sensors: Sensors, tmp_path: Path) -> None:
    file = tmp_path / "sensors.json"
    said = {
        "plugged": False,
        "full": True,
        "level": 41.5,
        "battery_temperature": 38,
        "skin_temperature": -3.25,
        "storage_bytes": 5,
        "memory_bytes": 0,
    }
    file.write_text(json.dumps(said))
    renamed = {name.removesuffix("_bytes"): value for name, value in said.items()}
    assert values(sensors.read()) == renamed
    file.write_text('{"level": 99}')
    readings = sensors.read()
    assert (readings.level.value, readings.full.value, readings.plugged.value) == (99, False, True)
    file.unlink()
    assert sensors.read().level.value == 100


@pytest.mark.parametrize("name", NAMES)
def test_a_silent_sensor_is_unknown_not_absent(sensors: Sensors, tmp_path: Path, name: str) -> None:
    (tmp_path / "sensors.json").write_text(json.dumps({"silent": [name], "skin_temperature": 30}))
    readings = sensors.read()
    silent = getattr(readings, name)
    assert (silent.value, silent.absent) == (None, False)
    assert "silent" in silent.why
    assert [other for other in NAMES if getattr(readings, other).value is None] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\xff",
        "[" * 5000,
        '{"level": "85"}',
        '{"level": true}',
        '{"levels": 85}',
        '{"plugged": 1}',
        '{"silent": ["everything"]}',
        '{"storage_bytes": -1}',
        '{"memory_bytes": 1' + "0" * 5000 + "}",
    ],
)
def test_a_malformed_file_makes_everything_unknown(
    sensors: Sensors, tmp_path: Path, text: str
) -> None:
    (tmp_path / "sensors.json").write_text(text, encoding="latin-1")
    readings = sensors.read()
    for name in NAMES:
        reading = getattr(readings, name)
        assert (reading.value, reading.absent) == (None, False)
        assert str(tmp_path / "sensors.json") in reading.why


def test_a_file_that_cannot_be_read_makes_everything_unknown(
    sensors: Sensors, tmp_path: Path
) -> None:
    (tmp_path / "sensors.json").mkdir()
    assert set(values(sensors.read()).values()) == {None}


@pytest.mark.parametrize("level", ["-1", "101", "NaN", "1e999", "-Infinity"])
def test_an_absurd_level_is_unknown_as_a_real_sensors_would_be(
    sensors: Sensors, tmp_path: Path, level: str
) -> None:
    (tmp_path / "sensors.json").write_text(f'{{"level": {level}}}')
    readings = sensors.read()
    assert readings.level.value is None
    assert readings.level.why is not None
    assert "0 to 100 %" in readings.level.why
    assert readings.plugged.value is True


def test_before_the_first_look_nothing_is_known(sensors: Sensors) -> None:
    before = sensors.last()
    assert set(values(before).values()) == {None}
    assert {getattr(before, name).at for name in NAMES} == {None}
    assert not before.skin_temperature.absent
    looked = sensors.read()
    assert sensors.last() is looked
