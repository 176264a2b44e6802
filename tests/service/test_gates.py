"""The gates one by one: what opens and closes each, as tables for people to read."""

import json
from typing import Any, Literal

import pytest

from api_schemas.gates import GATES, GateName
from service.gates.changes import changes
from service.gates.gatekeeper import Gatekeeper, gate_answers
from service.gates.limits import Limits
from service.gates.verdict import GateVerdict
from service.sensors.readings import Reading
from tests.service.gate_readings import MIB, readings

State = Literal["open", "passable", "closed"]
"""Passable: closed, but not for ``train:override``."""

Step = tuple[float, Literal["idle", "trains"], Any, State]
"""Minute, what the worker does, what the sensor says, and what the gate must be then."""

SILENT = None
ABSENT: Reading[float] = Reading(None, "a test", 0.0, "no zone is called skin", absent=True)

STORIES: dict[str, tuple[GateName, str, list[Step]]] = {
    "the charger is pulled for a moment: one pause of five minutes": (
        "charging",
        "plugged",
        [
            (0, "idle", True, "open"),
            (1, "trains", True, "open"),
            (2, "trains", False, "passable"),
            (3, "idle", True, "passable"),
            (6.9, "idle", True, "passable"),
            (7, "idle", True, "open"),
        ],
    ),
    "a loose cable: however often it moves, it is one pause each time it is pulled": (
        "charging",
        "plugged",
        [
            (0, "trains", True, "open"),
            (1, "trains", False, "passable"),
            (2, "idle", True, "passable"),
            (3, "idle", False, "passable"),
            (5.9, "idle", True, "passable"),
            (6, "idle", False, "passable"),
            (6.5, "idle", True, "open"),
        ],
    ),
    "the battery is charged to the start, and is then used down to the floor": (
        "level",
        "level",
        [
            (0, "idle", 79.9, "passable"),
            (1, "idle", 80, "open"),
            (2, "trains", 79, "open"),
            (3, "trains", 30, "open"),
            (4, "trains", 29.9, "closed"),
            (5, "idle", 30, "closed"),  # known again, but the floor has its cool-down, too
            (9, "idle", 30, "passable"),
            (10, "idle", 79, "passable"),
            (11, "idle", 80, "open"),
        ],
    ),
    "a start on a warm phone": (
        "battery_temperature",
        "battery_temperature",
        [
            (0, "idle", 35.1, "passable"),
            (1, "idle", 35, "open"),
            (2, "idle", 36, "passable"),  # the sun's heat, not ours: nothing has trained
            (7, "idle", 36, "passable"),
            (8, "idle", 35, "open"),
        ],
    ),
    "training warms the battery, which cools down by the night": (
        "battery_temperature",
        "battery_temperature",
        [
            (0, "idle", 34, "open"),
            (1, "trains", 41.9, "open"),
            (2, "trains", 42, "passable"),
            (4, "idle", 36, "passable"),  # cool enough, but within five minutes
            (7, "idle", 37.1, "passable"),
            (8, "idle", 37, "open"),
            (9, "trains", 41.9, "open"),
            (10, "idle", 38, "passable"),  # the run has ended, and the next one is a start
            (15, "idle", 37, "open"),
            (69, "idle", 37, "open"),
            (69.1, "idle", 37, "passable"),  # an hour later the heat is not ours
            (75, "idle", 36, "passable"),
            (76, "idle", 35, "open"),
        ],
    ),
    "beyond the hard limit nobody passes, nor for five minutes after it": (
        "battery_temperature",
        "battery_temperature",
        [
            (0, "idle", 42.9, "passable"),
            (1, "trains", 42.9, "passable"),  # by train:override
            (2, "trains", 43, "closed"),
            (3, "idle", 42.9, "closed"),
            (7, "idle", 42.9, "passable"),
        ],
    ),
    "after a hot reading silence opens nothing, however long it lasts": (
        "battery_temperature",
        "battery_temperature",
        [
            (0, "trains", 30, "open"),
            (1, "trains", 42, "passable"),
            (2, "idle", SILENT, "closed"),
            (50, "idle", SILENT, "closed"),
            (51, "idle", 37.1, "passable"),
            (52, "idle", 37, "open"),
        ],
    ),
    "a silent sensor, a dead one, and one that talks nonsense": (
        "level",
        "level",
        [
            (0, "idle", SILENT, "closed"),
            (1, "idle", 101, "closed"),
            (2, "idle", -1, "closed"),
            (3, "idle", float("nan"), "closed"),
            (4, "idle", 90, "open"),
        ],
    ),
    "a phone whose case tells nobody its temperature": (
        "skin_temperature",
        "skin_temperature",
        [(0, "idle", ABSENT, "open"), (1, "trains", ABSENT, "open")],
    ),
    "a case whose sensor disappears when it was hot": (
        "skin_temperature",
        "skin_temperature",
        [
            (0, "trains", 40, "open"),
            (1, "trains", 43, "passable"),
            (2, "idle", ABSENT, "closed"),
            (60, "idle", ABSENT, "closed"),
            (61, "idle", 40, "open"),
        ],
    ),
    "the case's own limits": (
        "skin_temperature",
        "skin_temperature",
        [
            (0, "idle", 40.1, "passable"),
            (1, "idle", 40, "open"),
            (2, "trains", 42.9, "open"),
            (3, "trains", 43, "passable"),
            (4, "idle", 46, "closed"),
        ],
    ),
    "the disk fills up while something trains": (
        "storage",
        "storage",
        [
            (0, "idle", 1023 * MIB, "closed"),
            (1, "idle", 1024 * MIB, "open"),
            (2, "trains", 512 * MIB, "open"),
            (3, "trains", 512 * MIB - 1, "closed"),
            (4, "idle", 1024 * MIB, "closed"),
            (8, "idle", 1023 * MIB, "closed"),
            (9, "idle", 1024 * MIB, "open"),
        ],
    ),
    "other apps need the memory": (
        "memory",
        "memory",
        [
            (0, "idle", 1535 * MIB, "closed"),
            (1, "idle", 1536 * MIB, "open"),
            (2, "trains", 512 * MIB, "open"),
            (3, "trains", 511 * MIB, "closed"),
            (8, "idle", 1536 * MIB, "open"),
        ],
    ),
}


def verdict_of(keeper: Gatekeeper, name: str) -> GateVerdict:
    [verdict] = [verdict for verdict in keeper.verdicts if verdict.name == name]
    return verdict


def state_of(verdict: GateVerdict) -> State:
    if verdict.open:
        assert not verdict.overridable
        return "open"
    return "passable" if verdict.overridable else "closed"


@pytest.mark.parametrize("story", STORIES)
def test_stories(story: str) -> None:
    gate, sensor, steps = STORIES[story]
    keeper = Gatekeeper(Limits())
    for minute, worker, value, expected in steps:
        now = 1000 + minute * 60
        keeper.update(readings(now, **{sensor: value}), now, training=worker == "trains")
        verdict = verdict_of(keeper, gate)
        assert state_of(verdict) == expected, (minute, verdict)
        others = [other for other in keeper.verdicts if other.name != gate]
        assert all(other.open for other in others), "one sensor's gate is no other's"


def test_before_the_first_reading_all_gates_are_closed() -> None:
    keeper = Gatekeeper(Limits())
    assert [verdict.name for verdict in keeper.verdicts] == list(GATES)
    assert {state_of(verdict) for verdict in keeper.verdicts} == {"closed"}
    assert "no sensor has been read yet" in (keeper.refusal(override=True) or "")


def test_a_phone_on_which_all_is_well_may_train() -> None:
    keeper = Gatekeeper(Limits(), clock=lambda: 10.0)
    assert all(verdict.open for verdict in keeper.update(readings(8), 10, training=False))
    assert keeper.refusal(override=False) is None
    assert {verdict.age_seconds for verdict in keeper.verdicts} == {2}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"level": 60, "full": True}, "open"),  # held at the charge limit its user set
        ({"level": 60, "full": None}, "passable"),
        ({"level": 60, "full": Reading(True, "a test", 819.0)}, "passable"),  # 181 s old
        ({"level": 29, "full": True}, "closed"),
        ({"level": None, "full": True}, "closed"),
    ],
)
def test_full_is_charged_enough_if_it_is_known(changes: dict[str, Any], state: State) -> None:
    keeper = Gatekeeper(Limits())
    keeper.update(readings(1000, **changes), 1000, training=False)
    assert state_of(verdict_of(keeper, "level")) == state
    assert verdict_of(keeper, "charging").open


@pytest.mark.parametrize(
    ("taken_at", "state"),
    [(1000, "open"), (820, "open"), (819.9, "closed"), (1000.1, "closed"), (None, "closed")],
)
@pytest.mark.parametrize("gate", GATES)
def test_a_reading_counts_for_three_minutes_and_not_before_it_was_taken(
    gate: str, taken_at: float | None, state: State
) -> None:
    keeper = Gatekeeper(Limits())
    sensor = "plugged" if gate == "charging" else gate
    value = getattr(readings(0), sensor).value
    old = Reading(value, "a test", taken_at)
    keeper.update(readings(1000, **{sensor: old}), 1000, training=False)
    assert state_of(verdict_of(keeper, gate)) == state


def reason(gate: str, **changes: Any) -> str:
    keeper = Gatekeeper(Limits())
    keeper.update(readings(1000, **changes), 1000, training=False)
    return verdict_of(keeper, gate).reason


def test_reasons_name_what_was_found_what_is_expected_and_what_opens() -> None:
    assert reason("charging", plugged=False) == "no charger is connected, and training needs one"
    assert reason("level", level=64.25) == (
        "the battery's charge is 64.25 %, and training starts from 80 % or with a full battery"
    )
    assert reason("battery_temperature", battery_temperature=44) == (
        "the battery has 44 °C, at or above the hard limit of 43 °C, and training starts at 35 °C "
        "or cooler"
    )
    assert reason("storage", storage=412 * MIB) == (
        "412 MiB of storage are free where lorad keeps its files, and training starts with 1024 MiB"
    )
    assert reason("memory", memory=None) == (
        "the available memory is not known: no answer in 5 s, and training starts with 1536 MiB"
    )
    assert "a test says 101, which can't be" in reason("level", level=101)
    assert "was read 200 s ago, and only 180 s count" in reason(
        "level", level=Reading(90.0, "a test", 800.0)
    )
    assert "the battery's temperature decides" in reason(
        "skin_temperature", skin_temperature=ABSENT
    )


def test_the_reason_of_a_cool_down_says_how_long_it_lasts() -> None:
    keeper = Gatekeeper(Limits())
    for now, plugged in ((0, True), (100, False), (160, True)):
        keeper.update(readings(now, plugged=plugged), now, training=True)
    assert verdict_of(keeper, "charging").reason == (
        "a charger is connected, but the gate closed a short while ago: it stays so for 300 s, "
        "240 s more"
    )


def test_a_refusal_names_every_closed_gate_and_first_what_nobody_passes() -> None:
    keeper = Gatekeeper(Limits(), clock=lambda: 1000.0)
    keeper.update(readings(1000, plugged=False, level=50, storage=0), 1000, training=False)
    assert keeper.refusal(override=False) == (
        "0 MiB of storage are free where lorad keeps its files, and training starts with 1024 MiB; "
        "no charger is connected, and training needs one; "
        "the battery's charge is 50 %, and training starts from 80 % or with a full battery"
    )
    assert keeper.refusal(override=True) == (
        "0 MiB of storage are free where lorad keeps its files, and training starts with 1024 MiB"
    )
    keeper.update(readings(1000, plugged=False, level=50), 1000, training=False)
    assert keeper.refusal(override=True) is None


def test_a_silent_program_is_blamed_once_for_all_that_it_would_tell() -> None:
    keeper = Gatekeeper(Limits(), clock=lambda: 1000.0)
    silent = dict.fromkeys(("plugged", "full", "level", "battery_temperature"))
    keeper.update(readings(1000, **silent, memory=0), 1000, training=False)
    assert keeper.refusal(override=True) == (
        "whether a charger is connected, the battery's charge and the battery's temperature are "
        "not known: no answer in 5 s, and training waits until they are; "
        "0 MiB of memory are available, and training starts with 1536 MiB"
    )


def test_verdicts_that_are_older_than_readings_may_be_let_nothing_train() -> None:
    """A phone that slept for hours asks before the first look after them."""
    now = 1000.0
    keeper = Gatekeeper(Limits(), clock=lambda: now)
    keeper.update(readings(now), now, training=False)
    now += 180
    assert keeper.refusal(override=False) is None
    now += 1
    assert "read 181 s ago" in (keeper.refusal(override=True) or "")


def test_changes_are_told_once_with_all_that_decided() -> None:
    keeper = Gatekeeper(Limits())

    def look(now: float, **said: Any) -> list[tuple[str, str]]:
        before = keeper.verdicts
        return list(changes(before, keeper.update(readings(now - 7, **said), now, training=False)))

    first = look(1000, plugged=False)
    assert [kind for kind, _ in first] == ["gate-closed"] + 5 * ["gate-opened"]
    assert first[0][1] == (
        "charging is closed, train:override passes (reading no, limit yes, 7 s old): "
        "no charger is connected, and training needs one"
    )
    assert first[1][1] == (
        "level is open (reading 90 %, limit 80 %, 7 s old): the battery's charge is 90 %"
    )
    assert look(1030, plugged=False, level=91.0) == []
    assert look(1060, plugged=None) == [
        (
            "gate-closed",
            "charging is closed (reading none, limit yes, 7 s old): whether a charger is connected "
            "is not known: no answer in 5 s, and training needs one",
        )
    ]
    [(kind, message)] = look(1090, plugged=None, storage=MIB)
    assert kind == "gate-closed"
    assert message.startswith("storage is closed (reading 1 MiB, limit 1024 MiB, 7 s old): ")


def test_the_answer_of_the_api_is_the_verdict() -> None:
    keeper = Gatekeeper(Limits())
    verdicts = keeper.update(readings(0, level=float("nan")), 5.04, training=False)
    answers = gate_answers(verdicts)
    for verdict, answer in zip(verdicts, answers, strict=True):
        told = vars(verdict) | {"age_seconds": 5.0}
        told.pop("unknown")
        assert answer.model_dump() == told
    told_as_json = [json.loads(answer.model_dump_json())["reading"] for answer in answers]
    assert repr(told_as_json) == f"[True, None, 30.0, 32.0, {4096 * MIB}, {3072 * MIB}]"
