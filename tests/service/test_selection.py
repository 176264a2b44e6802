"""Whose turn it is: every rule, the order, and that nobody starves."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_schemas.nights import RULES, NightOptions, Rule
from service.nights.selection import DAY_MS, Facts, UnfinishedRun, line_up
from service.runs.backoff import LONGEST_MS
from storage.tables import RunStatus

NOW = 1_800_000_000_000


def run(status: RunStatus = "interrupted", **changes: Any) -> UnfinishedRun:
    made = UnfinishedRun(
        id=5, status=status, origin="night", in_window=True, override=False, not_before=None
    )
    return replace(made, **changes)


def facts(adapter_id: int = 1, **changes: Any) -> Facts:
    night = NightOptions(**changes.pop("night", {}))
    return Facts(adapter_id, night, **({"train": changes.get("new", 0)} | changes))


def rule(**changes: Any) -> Rule:
    [standing] = line_up([facts(**changes)], NOW)
    assert (standing.place is None) == (standing.rule not in RULES[:4])
    return standing.rule


OFF = {"train": False}
CASES: list[tuple[Rule, dict[str, Any]]] = [
    ("no-examples", {}),
    ("nothing-new", {"train": 30}),
    ("too-few-new", {"new": 19}),
    ("too-few-new", {"new": 19, "oldest_new": NOW - 2 * DAY_MS + 1}),
    ("waited-long", {"new": 1, "oldest_new": NOW - 2 * DAY_MS}),
    ("waited-long", {"new": 1, "oldest_new": NOW - DAY_MS, "night": {"wait_days": 1}}),
    ("enough-new", {"new": 20}),
    ("enough-new", {"new": 3, "night": {"min_new": 3}}),
    ("nights-off", {"new": 500, "night": OFF}),
    ("base-model", {"new": 20, "problem": "it is gone"}),
    ("base-model", {"problem": "it is gone"}),
    ("budget-used", {"new": 20, "seconds_tonight": 7200.0}),
    ("enough-new", {"new": 20, "seconds_tonight": 7199.9}),
    ("training", {"run": run("running"), "seconds_tonight": 9999.0, "problem": "gone"}),
    ("paused", {"run": run("paused"), "new": 500}),
    ("unfinished", {"run": run("interrupted")}),
    ("unfinished", {"run": run("queued")}),
    ("nights-off", {"run": run(), "night": OFF}),
    ("unfinished", {"run": run(origin="request"), "night": OFF}),
    ("asked-now", {"run": run(origin="request", in_window=False), "night": OFF}),
    ("asked-now", {"run": run(in_window=False), "seconds_tonight": 9999.0}),
    ("budget-used", {"run": run(), "seconds_tonight": 7200.0}),
    ("base-model", {"run": run(in_window=False), "problem": "it is gone"}),
    ("backing-off", {"run": run(not_before=NOW + 1)}),
    ("backing-off", {"run": run(in_window=False, not_before=NOW + LONGEST_MS)}),
    ("unfinished", {"run": run(not_before=NOW + LONGEST_MS + 1)}),
    ("unfinished", {"run": run(not_before=NOW)}),
]


@pytest.mark.parametrize(("expected", "given"), CASES)
def test_the_rule_of_each_case(expected: Rule, given: dict[str, Any]) -> None:
    assert rule(**given) == expected


def test_no_rule_is_without_a_case() -> None:
    assert {expected for expected, _ in CASES} == set(RULES)


def test_the_order_of_turns() -> None:
    everyone = [
        facts(1, new=20, last_trained=5),
        facts(2, new=20),
        facts(3, run=run(id=40), last_trained=9),
        facts(4, run=run(id=50), last_trained=3),
        facts(5, run=run(id=31, in_window=False), last_trained=99),
        facts(6, run=run(id=30, in_window=False), last_trained=100),
        facts(7, new=1, oldest_new=NOW - 3 * DAY_MS),
        facts(8, new=3),
        facts(9, run=run("running")),
    ]
    standings = line_up(everyone, NOW)
    assert [one.facts.adapter_id for one in standings] == [6, 5, 4, 3, 2, 7, 1, 8, 9]
    assert [one.place for one in standings] == [1, 2, 3, 4, 5, 6, 7, None, None]
    assert [one.in_window for one in standings[:4]] == [False, False, True, True]


@given(st.permutations(range(8)))
def test_the_order_does_not_depend_on_how_they_are_given(order: list[int]) -> None:
    everyone = [facts(number, new=20, last_trained=number % 3) for number in range(8)]
    expected = [one.facts.adapter_id for one in line_up(everyone, NOW)]
    assert [one.facts.adapter_id for one in line_up([everyone[i] for i in order], NOW)] == expected
    assert expected == [0, 3, 6, 1, 4, 7, 2, 5]


TICK = 0.5
"""Minutes between two looks at the budgets."""


@dataclass
class App:
    """One simulated adapter: what arrives each day, and how long its runs take (minutes)."""

    arrivals: list[int]
    durations: list[float]
    night: NightOptions
    new: int = 0
    train: int = 0
    oldest: int | None = None
    left: float | None = None  # minutes of the unfinished run
    taken: int = 0  # examples that the unfinished run trains
    runs: int = 0
    last_trained: int = 0
    tonight: float = 0.0
    due_since: int | None = None
    waits: list[int] = field(default_factory=list)

    def arrive(self, day: int, now: int) -> None:
        count = self.arrivals[day % len(self.arrivals)]
        self.train += count
        if count and self.new == 0:
            self.oldest = now
        self.new += count

    def facts(self, number: int) -> Facts:
        unfinished = None if self.left is None else run(id=number)
        return Facts(
            number,
            self.night,
            unfinished,
            self.train,
            self.new,
            self.oldest,
            self.last_trained,
            self.tonight * 60,
        )

    def work(self, minutes: float, now: int) -> float:
        """Train until the run or the budget is at its end, or for so long; the minutes it took."""
        if self.left is None:
            self.left = self.durations[self.runs % len(self.durations)]
            self.taken, self.runs = self.new, self.runs + 1
        worked = 0.0
        while worked < minutes and self.left > 0 and self.tonight < self.night.minutes:
            worked, self.left, self.tonight = worked + TICK, self.left - TICK, self.tonight + TICK
        if self.left <= 0:
            self.new, self.oldest, self.left = self.new - self.taken, None, None
        self.last_trained = now
        return worked


@st.composite
def apps(draw: st.DrawFn) -> App:
    night = NightOptions(
        min_new=draw(st.integers(1, 40)),
        wait_days=draw(st.integers(1, 4)),
        minutes=draw(st.sampled_from([10, 30, 120, 600])),
    )
    arrivals = draw(st.lists(st.sampled_from([0, 0, 1, 5, 50]), min_size=1, max_size=5))
    durations = draw(st.lists(st.sampled_from([1.0, 20.0, 300.0]), min_size=1, max_size=3))
    return App(arrivals, durations, night)


@settings(max_examples=60, deadline=None)
@given(st.lists(apps(), min_size=1, max_size=6), st.sampled_from([45.0, 180.0, 480.0]))
def test_nobody_starves_and_no_budget_is_exceeded(everyone: list[App], window: float) -> None:
    nights = 40
    clock = 1
    for night in range(nights):
        now = NOW + night * DAY_MS
        for app in everyone:
            app.arrive(night, now - DAY_MS // 2)
            app.tonight = 0.0
        left, first = window, True
        while True:
            standings = line_up([app.facts(i) for i, app in enumerate(everyone)], now)
            due = [one for one in standings if one.place is not None]
            if first:
                for one in due:
                    app = everyone[one.facts.adapter_id]
                    app.due_since = night if app.due_since is None else app.due_since
                first = False
            if not due or left <= 0:
                break
            app = everyone[due[0].facts.adapter_id]
            clock += 1
            left -= app.work(left, clock)
            if app.due_since is not None:
                app.waits.append(night - app.due_since)
            app.due_since = None
        for app in everyone:
            assert app.tonight <= app.night.minutes + TICK
    # Before its turn each of the others ends at most an unfinished run and a new one.
    work = sum(2 * max(app.durations) + 2 * TICK for app in everyone)
    bound = math.ceil(work / window) + 1
    for app in everyone:
        overdue = [] if app.due_since is None else [nights - app.due_since]
        assert max([*app.waits, *overdue], default=0) <= bound
        total = sum(app.arrivals[night % len(app.arrivals)] for night in range(nights - 6))
        assert not total or app.runs > 0 or bound >= nights - 6
