"""What holds of the gates whatever the sensors say: random sequences against plain predicates."""

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from api_schemas.gates import GATES
from service.gates.gatekeeper import Gatekeeper
from service.gates.limits import Limits
from service.sensors.readings import Reading, Readings
from tests.service.gate_readings import MIB, readings

COOL_DOWN, MOST_AGE = 300, 180
SENSOR = {gate: "plugged" if gate == "charging" else gate for gate in GATES}


@dataclass(frozen=True)
class Look:
    now: int
    training: bool
    readings: Readings

    def known(self, name: str) -> Any:
        """The value, if it can be relied on; by rules of the test's own."""
        reading = getattr(self.readings, name)
        if reading.value is None or reading.at is None or not math.isfinite(reading.value):
            return None
        if not 0 <= self.now - reading.at <= MOST_AGE:
            return None
        ranges = {"level": (0, 100), "battery_temperature": (-30, 100)}
        ranges["skin_temperature"] = (-30, 100)
        least, most = ranges.get(name, (0, 2**63))
        return reading.value if least <= reading.value <= most else None


def sensor(*values: Any) -> st.SearchStrategy[tuple[Any, int]]:
    """A value with its age: mostly fresh, at times too old or from the future."""
    ages = st.sampled_from([0, 0, 0, 0, 0, 60, 179, 180, 181, 1000, -1])
    return st.tuples(st.sampled_from([*values, *values, None]), ages)


COOL = (20.0, 34.9, 35.0, 35.1, 36.9, 37.0, 37.1)
HEAT = (*COOL, 40.0, 40.1, 41.9, 42.0, 42.1, 42.9, 43.0, 43.1, 50.0)
SAID = st.fixed_dictionaries(
    {
        "plugged": sensor(True, True, True, False),
        "full": sensor(False, True),
        "level": sensor(0.0, 29.9, 30.0, 50.0, 79.9, 80.0, 100.0, 100.0, 101.0, math.nan, -1.0),
        "battery_temperature": sensor(*HEAT, -2e8, math.inf),
        "skin_temperature": sensor(*HEAT, 45.9, 46.0, "absent", "absent", "absent"),
        "storage": sensor(0, 512 * MIB - 1, 512 * MIB, 1024 * MIB - 1, 1024 * MIB, 2**40, -1),
        "memory": sensor(0, 512 * MIB - 1, 512 * MIB, 1536 * MIB - 1, 1536 * MIB, 2**40),
    }
)
STEP = st.tuples(st.sampled_from([1, 30, 60, 299, 300, 301, 5000]), st.booleans(), SAID)
CALM = st.fixed_dictionaries(
    {
        "plugged": st.just((True, 0)),
        "full": st.just((False, 0)),
        "level": st.just((90.0, 0)),
        "battery_temperature": sensor(*HEAT),
        "skin_temperature": st.just(("absent", 0)),
        "storage": st.just((2**40, 0)),
        "memory": st.just((2**40, 0)),
    }
)
CALM_STEP = st.tuples(st.sampled_from([30, 60, 301]), st.booleans(), CALM)
"""Only the battery's temperature moves, else a phone is hardly ever seen to open."""
LOOKS = st.one_of(st.lists(STEP, max_size=25), st.lists(CALM_STEP, max_size=25))


def looks(steps: list[tuple[int, bool, dict[str, tuple[Any, int]]]]) -> list[Look]:
    now, found = 10_000, []
    for seconds, training, said in steps:
        now += seconds
        taken: dict[str, Reading[Any]] = {}
        for name, (value, age) in said.items():
            absent = value == "absent"
            taken[name] = Reading(None if absent else value, "a test", now - age, absent=absent)
        found.append(Look(now, training, Readings(**taken)))
    return found


def within_the_laxest_limit(look: Look, gate: str, ever_known: bool) -> bool:
    value = look.known(SENSOR[gate])
    if value is None:
        return (
            gate == "skin_temperature" and look.readings.skin_temperature.absent and not ever_known
        )
    if look.training:
        return {
            "charging": lambda: value is True,
            "level": lambda: value >= 30,
            "battery_temperature": lambda: value < 42,
            "skin_temperature": lambda: value < 43,
            "storage": lambda: value >= 512 * MIB,
            "memory": lambda: value >= 512 * MIB,
        }[gate]()
    return may_open(look, gate, ever_known, resume=37)


def may_open(look: Look, gate: str, ever_known: bool, resume: float) -> bool:
    value = look.known(SENSOR[gate])
    if value is None:
        return (
            gate == "skin_temperature" and look.readings.skin_temperature.absent and not ever_known
        )
    full = look.known("full") is True
    return {
        "charging": lambda: value is True,
        "level": lambda: value >= 80 or (value >= 30 and full),
        "battery_temperature": lambda: value <= resume,
        "skin_temperature": lambda: value <= 40,
        "storage": lambda: value >= 1024 * MIB,
        "memory": lambda: value >= 1536 * MIB,
    }[gate]()


def override_may_pass(look: Look, gate: str) -> bool:
    """What design.md names: all the rest nobody passes."""
    value = look.known(SENSOR[gate])
    if value is None:
        return False
    return {
        "charging": lambda: True,
        "level": lambda: value >= 30,
        "battery_temperature": lambda: value < 43,
        "skin_temperature": lambda: value < 46,
        "storage": lambda: False,
        "memory": lambda: False,
    }[gate]()


@settings(max_examples=400, deadline=None)
@given(LOOKS)
def test_whatever_the_sensors_say(steps: list[Any]) -> None:
    now = 0.0
    keeper = Gatekeeper(Limits(), clock=lambda: now)
    was_open = dict.fromkeys(GATES, False)
    closed_at: dict[str, float | None] = dict.fromkeys(GATES)
    opened_at: dict[str, float | None] = dict.fromkeys(GATES)
    forbidden_at: dict[str, float | None] = dict.fromkeys(GATES)
    was_allowed = dict.fromkeys(GATES, False)
    ever_known = dict.fromkeys(GATES, False)
    trained_at: float | None = None
    for look in looks(steps):
        now = look.now
        verdicts = keeper.update(look.readings, now, training=look.training)
        assert [verdict.name for verdict in verdicts] == list(GATES)
        passed = True
        for verdict in verdicts:
            gate = verdict.name
            closed = closed_at[gate]
            cooled = closed is None or now - closed >= COOL_DOWN
            # Never open while unknown, or beyond the limit that stops training.
            if verdict.open:
                assert within_the_laxest_limit(look, gate, ever_known[gate])
                assert not verdict.overridable
            # It opens only by the limit to start, or by that to resume if it trained and was open.
            own_heat = trained_at is not None and now - trained_at <= 3600
            resume = 37 if own_heat else 35
            if verdict.open and not was_open[gate]:
                assert may_open(look, gate, ever_known[gate], resume)
                opened = opened_at[gate]
                assert opened is None or now - opened >= COOL_DOWN
                assert cooled
                opened_at[gate] = now
            # And it does open then, and stays open while it trains within the laxer limit.
            if may_open(look, gate, ever_known[gate], resume) and (cooled or was_open[gate]):
                assert verdict.open
            if was_open[gate] and within_the_laxest_limit(look, gate, ever_known[gate]):
                assert verdict.open or not look.training
            # What override passes is closed, known and not beyond what nobody passes; all that is
            # so, it passes, but for the cool-down after what it did not.
            allowed = override_may_pass(look, gate)
            if verdict.overridable:
                assert allowed
            elif allowed and not verdict.open:
                forbidden = forbidden_at[gate]
                assert forbidden is not None
                assert now - forbidden < COOL_DOWN
            if was_allowed[gate] and not (allowed or verdict.open):
                forbidden_at[gate] = now
            was_allowed[gate] = allowed or verdict.open
            passed &= verdict.open or allowed
            # A closed gate says why in one line.
            assert verdict.reason
            assert "\n" not in verdict.reason
            if was_open[gate] and not verdict.open:
                closed_at[gate] = now
            if gate == "battery_temperature" and was_open[gate] and look.training:
                trained_at = now if look.known(gate) is not None else trained_at
            was_open[gate] = verdict.open
            ever_known[gate] |= look.known(SENSOR[gate]) is not None
        refusal = keeper.refusal(override=False)
        assert (refusal is None) == all(verdict.open for verdict in verdicts)
        assert passed or keeper.refusal(override=True) is not None
        if refusal is not None:
            assert all(
                verdict.unknown or verdict.reason in refusal
                for verdict in verdicts
                if not verdict.open
            )


@settings(max_examples=100, deadline=None)
@given(LOOKS, st.sampled_from(sorted(set(SENSOR.values()))), st.lists(SAID, max_size=8))
def test_silence_opens_nothing(
    steps: list[Any], name: str, then: list[dict[str, tuple[Any, int]]]
) -> None:
    """Whatever was before, and whatever the other sensors say: least of all after a bad reading."""
    keeper = Gatekeeper(Limits())
    now = 10_000
    for look in looks(steps):
        now = look.now
        keeper.update(look.readings, now, training=look.training)
    [gate] = [gate for gate, sensor in SENSOR.items() if sensor == name]
    for said in then:
        now += 200_000
        [look] = looks([(0, False, said | {name: (None, 0)})])
        for training in (False, True):
            verdicts = keeper.update(look.readings, look.now, training=training)
            [verdict] = [verdict for verdict in verdicts if verdict.name == gate]
            assert not verdict.open
            assert not verdict.overridable


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 120), st.booleans()), min_size=1, max_size=200))
def test_a_flapping_sensor_costs_one_pause_in_five_minutes(flaps: list[tuple[int, bool]]) -> None:
    keeper = Gatekeeper(Limits())
    now, pauses, was_open = 0, 0, False
    for seconds, plugged in flaps:
        now += seconds
        charging = keeper.update(readings(now, plugged=plugged), now, training=True)[0]
        pauses += was_open and not charging.open
        was_open = charging.open
    assert pauses <= now // COOL_DOWN + 1
