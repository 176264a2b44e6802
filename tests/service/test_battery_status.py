"""What `termux-battery-status` printed through the years, and what it should never have."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.sensors.battery_status import BatteryStatusError, parse
from service.sensors.readings import Battery

V50 = {
    "health": "GOOD",
    "percentage": 57,
    "plugged": "UNPLUGGED",
    "status": "DISCHARGING",
    "temperature": 26.700000762939453,
    "current": -9223372036854775808,
}
V51 = {
    "present": True,
    "technology": "Li-ion",
    "health": "GOOD",
    "plugged": "PLUGGED_DOCK",
    "status": "NOT_CHARGING",
    "temperature": "30,4",
    "voltage": 4093,
    "current": 3000,
    "current_average": None,
    "percentage": 82,
    "level": 82,
    "scale": 100,
    "charge_counter": 4012000,
    "energy": None,
    "cycle": None,
}
V53 = {
    "present": True,
    "technology": "Li-poly",
    "health": "GOOD",
    "plugged": "PLUGGED_USB",
    "status": "CHARGING",
    "temperature": 31.9,
    "voltage": 4201,
    "current": 1710000,
    "percentage": 73,
    "level": 73,
    "scale": 100,
}
NO_BROADCAST = """{
  "present": false,
  "health": "-1",
  "plugged": "PLUGGED_-1",
  "status": "UNKNOWN",
  "temperature": -2.147483648E8,
  "voltage": -1000,
  "level": -1,
  "scale": -1
}
"""


def read(told: Any, **changes: Any) -> Battery:
    return parse(json.dumps(told | changes).encode(), "termux", 7.0)


def values(battery: Battery) -> tuple[Any, ...]:
    return tuple(
        getattr(battery, name).value for name in ("level", "plugged", "full", "battery_temperature")
    )


def without(status: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name not in names}


def test_the_formats_of_all_versions() -> None:
    assert values(read(V50)) == (57, False, False, 26.7)
    assert values(read(V51)) == (82, True, True, 30.4)
    assert values(read(V53)) == (73, True, False, 31.9)


def test_every_reading_has_source_and_time() -> None:
    for reading in vars(read(V53)).values():
        assert (reading.source, reading.at, reading.why, reading.absent) == (
            "termux",
            7.0,
            None,
            False,
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30.4", 30.4),
        ("30,4", 30.4),
        ("30", 30),
        ("-5,25", -5.25),
        ("0,0", 0),
        ("\u0663\u0660\u066b\u0664", 30.4),  # 30.4 in Arabic digits
    ],
)
def test_a_temperature_as_text(text: str, expected: float) -> None:
    assert read(V51, temperature=text).battery_temperature.value == expected


@pytest.mark.parametrize(
    "temperature",
    [
        -214748364.8,
        -60,
        200,
        100.1,
        float("nan"),
        float("inf"),
        float("-inf"),
        10**400,
        True,
        [30],
        {"value": 30},
        "30.4 °C",
        "3.04e1",
        "1,030.4",
        "NaN",
        "",
        "30.",
        "--3",
        "200.5",
        "9" * 5000,
    ],
)
def test_an_absurd_temperature_is_unknown_and_the_rest_is_not(temperature: object) -> None:
    battery = read(V53, temperature=temperature)
    assert values(battery) == (73, True, False, None)
    why = battery.battery_temperature.why
    assert why is not None
    assert why.startswith("expected -30 to 100 °C, found ")
    assert repr(temperature)[:20].strip("'") in why
    assert len(why) < 120


@pytest.mark.parametrize("percentage", [101, -1, 100.5, float("nan"), 10**300, True, "82", [], {}])
def test_an_absurd_percentage_is_unknown_even_beside_a_level(percentage: object) -> None:
    battery = read(V53, percentage=percentage)
    assert values(battery) == (None, True, False, 31.9)
    assert battery.level.why is not None
    assert battery.level.why.startswith("expected 0 to 100 %, found ")
    assert str(percentage)[:20] in battery.level.why


@pytest.mark.parametrize(("percentage", "level"), [(0, 0), (100, 100), (50.5, 50.5)])
def test_the_ends_of_the_range_and_a_half(percentage: float, level: float) -> None:
    assert read(V53, percentage=percentage).level.value == level


@pytest.mark.parametrize("percentage", [{}, {"percentage": None}])
@pytest.mark.parametrize(
    ("level", "scale", "expected"),
    [
        (73, 100, 73),
        (146, 200, 73),
        (0, 100, 0),
        (10**30, 10**30, 100),
        (-1, -1, None),
        (0, 0, None),
        (101, 100, None),
        (-1, 100, None),
        (73, None, None),
        (None, 100, None),
        (True, True, None),
        (73.0, 100, None),
    ],
)
def test_level_and_scale_where_there_is_no_percentage(
    percentage: dict[str, Any], level: object, scale: object, expected: float | None
) -> None:
    status = without(V53, "percentage") | percentage
    battery = read(status, level=level, scale=scale)
    assert battery.level.value == expected
    assert (battery.level.why is None) == (expected is not None)


@pytest.mark.parametrize(
    ("plugged", "expected"),
    [
        ("UNPLUGGED", False),
        ("PLUGGED_AC", True),
        ("PLUGGED_USB", True),
        ("PLUGGED_WIRELESS", True),
        ("PLUGGED_DOCK", True),
        ("PLUGGED_3", True),
        ("PLUGGED_13", True),
        ("PLUGGED_-1", None),
        ("PLUGGED_0", None),
        ("PLUGGED_", None),
        ("PLUGGED_AC ", None),
        ("PLUGGED_3\n", None),
        ("unplugged", None),
        ("", None),
        (None, None),
        (True, None),
        (1, None),
        ([], None),
    ],
)
def test_plugged(plugged: object, expected: bool | None) -> None:
    battery = read(V53, plugged=plugged)
    assert battery.plugged.value is expected
    if expected is None:
        assert battery.plugged.why is not None
        assert "UNPLUGGED or PLUGGED_" in battery.plugged.why
        assert battery.full.value is False  # it is charging, whatever by


@pytest.mark.parametrize(
    ("state", "plugged", "health", "expected"),
    [
        ("FULL", "PLUGGED_AC", "GOOD", True),
        ("FULL", "UNPLUGGED", "GOOD", True),
        ("NOT_CHARGING", "PLUGGED_USB", "GOOD", True),
        ("NOT_CHARGING", "PLUGGED_USB", "-1", True),
        ("NOT_CHARGING", "PLUGGED_USB", None, True),
        ("NOT_CHARGING", "PLUGGED_USB", [], True),
        ("NOT_CHARGING", "PLUGGED_USB", "OVERHEAT", False),
        ("NOT_CHARGING", "PLUGGED_USB", "COLD", False),
        ("NOT_CHARGING", "UNPLUGGED", "GOOD", False),
        ("NOT_CHARGING", "PLUGGED_-1", "GOOD", None),
        ("CHARGING", "PLUGGED_AC", "GOOD", False),
        ("DISCHARGING", "PLUGGED_AC", "GOOD", False),
        ("UNKNOWN", "PLUGGED_AC", "GOOD", None),
        ("full", "PLUGGED_AC", "GOOD", None),
        (None, "PLUGGED_AC", "GOOD", None),
        (["FULL"], "PLUGGED_AC", "GOOD", None),
    ],
)
def test_full(state: object, plugged: str, health: object, expected: bool | None) -> None:
    battery = read(V53, status=state, plugged=plugged, health=health)
    assert battery.full.value is expected
    assert (battery.full.why is None) == (expected is not None)


def test_before_the_first_broadcast_nothing_is_known() -> None:
    battery = parse(NO_BROADCAST.encode(), "termux", 7.0)
    assert values(battery) == (None, None, None, None)
    sentinels = NO_BROADCAST.replace('"present": false', '"present": true')
    assert values(parse(sentinels.encode(), "termux", 7.0)) == (None, None, None, None)


@pytest.mark.parametrize("name", ["temperature", "plugged", "status"])
def test_what_is_left_out_is_unknown_alone(name: str) -> None:
    gone = values(read(without(V53, name)))
    assert values(read(V53, **{name: None})) == gone
    assert gone.count(None) == 1


@pytest.mark.parametrize(
    ("printed", "what"),
    [
        (b"", "nothing"),
        (b" \n", "nothing"),
        (b"termux-battery-status: not found\n", "isn't JSON"),
        (b'{\n  "present": true,\n  "hea', "isn't JSON"),
        (b"\xff\xfe", "isn't JSON"),
        (b"[" * 100_000, "isn't JSON"),
        (b'{"percentage": ' + b"1" * 5000 + b"}", "isn't JSON"),
        (b"[]", "isn't an object"),
        (b"null", "isn't an object"),
        (b"82", "isn't an object"),
    ],
)
def test_what_is_no_status(printed: bytes, what: str) -> None:
    with pytest.raises(BatteryStatusError, match=what):
        parse(printed, "termux", 7.0)


def check(printed: bytes) -> None:
    try:
        battery = parse(printed, "termux", 7.0)
    except BatteryStatusError:
        return
    level, plugged, full, temperature = values(battery)
    assert level is None or (type(level) is float and 0 <= level <= 100)
    assert temperature is None or (type(temperature) is float and -30 <= temperature <= 100)
    assert plugged in (True, False, None)
    assert full in (True, False, None)
    for reading in vars(battery).values():
        assert (reading.value is None) == bool(reading.why)
        assert len(reading.why or "") < 200


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(
        [*V50.values(), *V51.values(), "PLUGGED_-1", 10**400, -1, "\u0663\u066b\u0664"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@given(st.binary() | st.text().map(str.encode))
@example(b'{"temperature": 1e999}')
@example(b'{"level": 1, "scale": 1e999}')
def test_any_bytes_give_readings_in_their_ranges_or_none(printed: bytes) -> None:
    check(printed)


@given(
    st.sampled_from([V50, V51, V53, {}]), st.dictionaries(st.sampled_from(sorted(V51)), anything)
)
def test_any_values_give_readings_in_their_ranges_or_none(
    status: dict[str, Any], changes: dict[str, Any]
) -> None:
    check(json.dumps(status | changes).encode())


@given(st.integers(0, len(json.dumps(V53))), st.binary(max_size=3))
def test_a_damaged_status_gives_readings_in_their_ranges_or_none(at: int, put: bytes) -> None:
    whole = json.dumps(V53).encode()
    check(whole[:at] + put + whole[at + len(put) :])
