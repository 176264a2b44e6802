"""The table of limits: as documented, and refused where it makes no sense."""

import re
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.gates.limits import PREFIX, Limits
from tests.service.daemon import ROOT
from tests.service.test_cli import lorad

PAGE = (ROOT / "service/gates/README.md").read_text()
BATTERY = "LORAD_GATE_BATTERY_TEMPERATURE_"


def test_the_page_has_the_table_of_limits_and_no_other_rows() -> None:
    [table] = re.findall(r"^## Limits\n(.*?)^Why these numbers", PAGE, re.DOTALL | re.MULTILINE)
    rows = [
        tuple(cell.strip().strip("`") for cell in line.strip("|").split("|"))[:4]
        for line in table.splitlines()
        if line.startswith("|")
    ]
    assert rows[0] == ("variable", "default", "unit", "range")
    assert set(rows[1]) == {"---"}
    expected = []
    for name, limit in Limits.model_fields.items():
        assert isinstance(limit.json_schema_extra, dict)
        bounds = {
            key: getattr(part, key)
            for part in limit.metadata
            for key in ("ge", "le")
            if hasattr(part, key)
        }
        least, most = f"{bounds['ge']:g}", bounds.get("le")
        expected.append(
            (
                f"{PREFIX}{name.upper()}",
                f"{limit.default:.10g}",
                limit.json_schema_extra["unit"],
                f"from {least}" if most is None else f"{least} to {most:g}",
            )
        )
    assert rows[2:] == expected


def test_every_variable_that_the_page_names_exists() -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Limits.model_fields}
    assert set(re.findall(rf"{PREFIX}\w+", PAGE)) == known
    short = set(re.findall(r"`((?:LEVEL|STORAGE|MEMORY)_\w+)`", PAGE))
    assert {PREFIX + name for name in short} <= known


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"level_floor": 81}, ("LEVEL_FLOOR (81)", "LEVEL_START (80)")),
        ({"battery_temperature_start": 38}, ("START (38)", "RESUME (37)")),
        ({"battery_temperature_start": 41}, ("START (41)", "RESUME (37)")),
        ({"battery_temperature_resume": 42}, ("RESUME (42)", "PAUSE (42)")),
        ({"battery_temperature_soft": 42}, ("SOFT (42)", "PAUSE (42)")),
        ({"battery_temperature_pause": 44}, ("PAUSE (44)", "HARD (43)")),
        ({"skin_temperature_hard": 42}, ("SKIN_TEMPERATURE_PAUSE (43)", "HARD (42)")),
        ({"storage_floor_bytes": 2**31}, ("STORAGE_FLOOR_BYTES (2147483648)", "START")),
        ({"memory_start_bytes": 1}, ("MEMORY_FLOOR_BYTES", "MEMORY_START_BYTES (1)")),
    ],
)
def test_limits_that_contradict_each_other(
    changed: dict[str, float], named: tuple[str, str]
) -> None:
    with pytest.raises(ValidationError) as refused:
        Limits(**changed)
    [error] = refused.value.errors()
    for name in named:
        assert name in error["msg"]


@pytest.mark.parametrize(
    "changed",
    [
        {"cool_down_seconds": -1},
        {"most_age_seconds": 0},
        {"level_start": 101},
        {"level_floor": 0},
        {"battery_temperature_hard": 46},
        {"battery_temperature_start": 9},
        {"duty_least": 0},
        {"duty_least": 1.5},
        {"skin_temperature_hard": 60},
        {"storage_floor_bytes": -1},
        {"battery_temperature_pause": float("nan")},
    ],
)
def test_limits_out_of_range(changed: dict[str, float]) -> None:
    with pytest.raises(ValidationError) as refused:
        Limits(**changed)
    assert [error["loc"] for error in refused.value.errors()] == [(name,) for name in changed]


def test_equal_limits_that_make_sense() -> None:
    Limits(level_start=50, level_floor=50, battery_temperature_pause=43, skin_temperature_start=40)


def refusal(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return lorad("serve", "--port", "0", home=home, **environment)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (f"{BATTERY}RESUME", "42.5", f"{BATTERY}RESUME (42.5) must be below {BATTERY}PAUSE (42)"),
        (f"{BATTERY}HARD", "60", f"{BATTERY}HARD is 60: "),
        ("LORAD_GATE_LEVEL_START", "eighty", "LORAD_GATE_LEVEL_START is eighty: "),
        ("LORAD_GATE_LEVEL_STRAT", "90", "LORAD_GATE_LEVEL_STRAT is no limit of a gate"),
    ],
)
def test_the_daemon_refuses_to_start_with_them(
    tmp_path: Path, name: str, value: str, told: str
) -> None:
    answer = refusal(tmp_path / "home", **{name: value})
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"lorad: {told}")
    assert len(answer.stderr.splitlines()) == 1
    assert not (tmp_path / "home").exists()
