"""Who is trained next, as a pure function of what is known of each adapter.

First the runs that were asked for and wait for no window, oldest first. Then the night's order:
those with an unfinished run, then those that are due with new examples; among each the one that
was trained least recently, and of equals the one that was created first. Due is who has
``min_new`` new training examples, or fewer of which one has waited ``wait_days``: so nobody waits
for ever. Nobody is trained longer than ``minutes`` in one night.

Nobody starves: whoever is trained goes behind all who were trained before, and a budget that is
used up gives the rest of the night to the next in line.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from api_schemas.nights import DueRule, NightOptions, Rule
from service.runs.backoff import waits
from storage.tables import Origin, RunStatus

DAY_MS = 86_400_000


@dataclass(frozen=True)
class UnfinishedRun:
    """The adapter's one run that can still go on."""

    id: int
    status: RunStatus
    origin: Origin
    in_window: bool
    override: bool
    not_before: int | None
    """Milliseconds since 1970 UTC."""


@dataclass(frozen=True)
class Facts:
    """What decides an adapter's turn. Times are milliseconds since 1970 UTC.

    ``new`` counts the training examples that no finished version has seen; after a failed or
    cancelled run only those that came or changed since that run was made.
    """

    adapter_id: int
    night: NightOptions
    run: UnfinishedRun | None = None
    train: int = 0
    new: int = 0
    oldest_new: int | None = None
    """When the new example that has waited longest came; None where ``new`` says enough."""
    last_trained: int = 0
    """0: never."""
    seconds_tonight: float = 0.0
    problem: str | None = None
    """What keeps its base model from being trained on."""

    @property
    def budget_used(self) -> bool:
        """Whether it has had its minutes of this night."""
        return self.seconds_tonight >= self.night.minutes * 60


@dataclass(frozen=True)
class Standing:
    """How it is with one adapter: the rule that applies, and its place among those that are due."""

    facts: Facts
    rule: Rule
    place: int | None
    """1 is next; None: it is not due."""

    @property
    def in_window(self) -> bool:
        """Whether it waits for a window to be open."""
        return self.rule != "asked-now"


def line_up(everyone: Iterable[Facts], now: int) -> list[Standing]:
    """All of them: those that are due in the order of their turns, then the others as given."""
    due: list[tuple[Facts, DueRule]] = []
    others: list[Standing] = []
    for facts in everyone:
        rule = _rule(facts, now)
        if rule in ("asked-now", "unfinished", "enough-new", "waited-long"):
            due.append((facts, rule))
        else:
            others.append(Standing(facts, rule, None))
    due.sort(key=_turn)
    return [
        *(Standing(facts, rule, place) for place, (facts, rule) in enumerate(due, 1)),
        *others,
    ]


def _turn(one: tuple[Facts, DueRule]) -> tuple[int, int, int]:
    facts, rule = one
    if rule == "asked-now":
        assert facts.run is not None
        return (0, facts.run.id, facts.adapter_id)
    return (1 if rule == "unfinished" else 2, facts.last_trained, facts.adapter_id)


def _rule(facts: Facts, now: int) -> Rule:
    if facts.run is not None:
        return _rule_of_run(facts, facts.run, now)
    if facts.problem is not None:
        return "base-model"
    if facts.train == 0:
        return "no-examples"
    if not facts.night.train:
        return "nights-off"
    if facts.new == 0:
        return "nothing-new"
    enough = facts.new >= facts.night.min_new
    if not enough and not _has_waited(facts, now):
        return "too-few-new"
    if facts.budget_used:
        return "budget-used"
    return "enough-new" if enough else "waited-long"


def _rule_of_run(facts: Facts, run: UnfinishedRun, now: int) -> Rule:
    if run.status == "running":
        return "training"
    if run.status == "paused":
        return "paused"
    if facts.problem is not None:
        return "base-model"
    if waits(run.not_before, now):
        return "backing-off"
    if not run.in_window:
        return "asked-now"
    if run.origin == "night" and not facts.night.train:
        return "nights-off"
    return "budget-used" if facts.budget_used else "unfinished"


def _has_waited(facts: Facts, now: int) -> bool:
    return facts.oldest_new is not None and facts.oldest_new <= now - facts.night.wait_days * DAY_MS
