"""How much of the time may be worked, by the temperatures that are told."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.gates.limits import Limits
from service.gates.pacing import Pacer
from service.sensors.readings import Reading
from tests.service.gate_readings import readings

LIMITS = Limits(
    battery_temperature_soft=38,
    battery_temperature_pause=42,
    skin_temperature_soft=40,
    skin_temperature_pause=44,
    duty_least=0.1,
)
ABSENT: Reading[float] = Reading(None, None, None, "no such sensor", absent=True)
CELSIUS = st.floats(-30, 100)


def duty(battery: Any, skin: Any = 20.0, limits: Limits = LIMITS) -> float:
    """On the first reading."""
    return Pacer(limits).duty(
        readings(100.0, battery_temperature=battery, skin_temperature=skin, full=False)
    )


def series(*told: tuple[float, Any], skin: bool = False) -> list[float]:
    """The duties on readings of the battery, or of the case, that were taken at these seconds."""
    pacer = Pacer(LIMITS)
    name = "skin_temperature" if skin else "battery_temperature"
    other = "battery_temperature" if skin else "skin_temperature"
    return [pacer.duty(readings(at, **{name: value, other: 20.0})) for at, value in told]


@pytest.mark.parametrize(
    ("battery", "skin", "expected"),
    [
        (20.0, 20.0, 1.0),
        (38.0, 40.0, 1.0),
        (39.5, 40.0, 0.55),
        (38.0, 41.5, 0.55),
        (39.5, 42.9, 0.13),  # the lower of both
        (40.9, 41.5, 0.13),
        (41.0, 20.0, 0.1),
        (42.5, 20.0, 0.1),  # a run that passed the gate
        (20.0, 43.0, 0.1),
        (99.0, 99.0, 0.1),
    ],
)
def test_falls_from_soft_to_the_last_quarter_before_the_pause(
    battery: float, skin: float, expected: float
) -> None:
    assert duty(battery, skin) == pytest.approx(expected)


@given(CELSIUS, CELSIUS, st.floats(0, 20), st.booleans())
def test_warmer_is_never_more_and_a_little_warmer_is_little_less(
    battery: float, skin: float, more: float, of_the_skin: bool
) -> None:
    cool = duty(battery, skin)
    warm = duty(battery, skin + more) if of_the_skin else duty(battery + more, skin)
    assert 0.1 <= warm <= cool <= 1
    assert cool - warm <= 0.3 * more + 1e-9


@given(CELSIUS, CELSIUS)
def test_a_case_without_a_sensor_has_no_say(battery: float, skin: float) -> None:
    assert duty(battery, ABSENT) == duty(battery, -30.0) >= duty(battery, skin)


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -math.inf])
def test_unknown_is_the_least(unknown: float | None) -> None:
    assert duty(unknown) == 0.1
    assert duty(20.0, unknown) == 0.1
    assert duty(Reading(20.0, "a test", None)) == 0.1, "it doesn't say when it was read"
    assert duty(ABSENT) == 0.1, "a battery's that can't be read is unknown"


@given(
    st.floats(10, 44),
    st.floats(0.1, 3),
    st.floats(0.01, 1),
    CELSIUS,
)
def test_any_limits_that_are_accepted_give_a_share(
    soft: float, band: float, least: float, battery: float
) -> None:
    pause = min(soft + band, 44.9)
    limits = Limits(
        battery_temperature_start=10,
        battery_temperature_resume=10,
        battery_temperature_soft=min(soft, pause - 1e-6),
        battery_temperature_pause=pause,
        battery_temperature_hard=45,
        duty_least=least,
    )
    found = duty(battery, limits=limits)
    assert least <= found <= 1
    if battery >= pause:
        assert found == pytest.approx(least)


def test_a_duty_of_one_at_least_is_no_pacing() -> None:
    limits = Limits(duty_least=1)
    assert duty(41.9, 42.9, limits) == duty(None, None, limits) == 1


def test_what_rises_counts_as_it_will_be_in_two_minutes() -> None:
    # 0.5 K in a minute is 1 K in two: 38.5 counts as 39.5.
    assert series((0, 38.0), (60, 38.5)) == pytest.approx([1.0, 0.55])
    assert series((0, 40.0), (60, 40.5), skin=True) == pytest.approx([1.0, 0.55])
    assert series((0, 35.0), (60, 37.0)) == pytest.approx([1.0, 0.1]), "before it is warm"
    assert series((0, 37.0), (120, 38.5)) == pytest.approx([1.0, 0.4]), "by the time between them"


def test_what_falls_counts_as_it_is() -> None:
    assert series((0, 41.0), (60, 39.5), (120, 39.5)) == pytest.approx([0.1, 0.55, 0.55])


def test_the_same_reading_told_again_changes_nothing() -> None:
    told = [(0, 38.0), (0, 38.0), (60, 38.5), (60, 38.5), (60, 38.5), (120, 38.5), (120, 38.5)]
    assert series(*told) == pytest.approx([1, 1, 0.55, 0.55, 0.55, 0.85, 0.85])


def test_readings_that_are_near_or_far_apart_tell_no_trend() -> None:
    assert series((0, 38.0), (10, 39.5)) == pytest.approx([1, 0.55]), "a leap of a sensor"
    assert series((0, 38.0), (10, 38.2), (60, 39.0))[2] == pytest.approx(0.1), "from the first on"
    assert series((0, 30.0), (181, 39.5)) == pytest.approx([1, 0.55]), "a suspended phone"
    assert series((500, 30.0), (60, 39.5)) == pytest.approx([1, 0.55]), "another clock"


def test_after_a_silent_reading_the_trend_is_known_again() -> None:
    assert series((0, 38.0), (60, None), (120, 38.5)) == pytest.approx([1, 0.1, 0.7])


@given(st.lists(st.tuples(st.floats(0, 1000), CELSIUS), max_size=20))
def test_no_order_of_readings_gives_more_than_the_last_one_alone(
    told: list[tuple[float, float]],
) -> None:
    for share, (_, celsius) in zip(series(*told), told, strict=True):
        assert 0.1 <= share <= duty(celsius) + 1e-9
