"""Pause, resume and cancel in every state: the table, its words, and the real thing over HTTP."""

import itertools
from typing import get_args

import pytest
from sqlmodel import Session

from service.runs import steering
from service.runs.run_end import RunEnd
from service.runs.steering import TABLE, VERBS, SteeringError, Verb, as_wanted, steer
from storage.tables import Run, RunStatus, Wanted

STATES = [
    (status, wanted)
    for status in get_args(RunStatus)
    for wanted in ((None, *get_args(Wanted)) if status == "running" else (None,))
]
AT = "2026-11-29T20:00:00.000Z"


def run_in(status: RunStatus, wanted: Wanted | None) -> Run:
    run = Run(id=7, adapter_id=1, status=status, wanted=wanted, step=12)
    if wanted in ("pause", "cancel"):
        run.error = f"{wanted} asked for at {AT}"
    return run


def test_the_table_has_every_state_and_says_what_the_words_say() -> None:
    assert set(TABLE) == set(STATES)
    lines = [line.split("  ") for line in (steering.__doc__ or "").splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    told = {cells[0]: cells[1:] for cells in cells if len(cells) == 1 + len(VERBS)}
    assert told.pop("state") == list(VERBS)
    assert told == {
        f"{status}/{wanted}" if wanted else status: list(outcomes)
        for (status, wanted), outcomes in TABLE.items()
    }


@pytest.mark.parametrize(("state", "verb"), list(itertools.product(STATES, VERBS)))
def test_every_verb_in_every_state(state: tuple[RunStatus, Wanted | None], verb: Verb) -> None:
    run = run_in(*state)
    before = run.model_dump()
    outcome = TABLE[state][VERBS.index(verb)]
    with Session() as session:
        if outcome == "refused":
            with pytest.raises(SteeringError, match=r"run 7 is .*new run"):
                steer(session, run, verb, AT)
            assert run.model_dump() == before
            return
        steered = steer(session, run, verb, AT)
        session.expunge_all()
    assert steered.changed == (run.model_dump() != before)
    assert steered.stops_worker == (outcome in ("ask pause", "ask cancel"))
    match outcome:
        case "same":
            assert run.model_dump() == before
        case "ask pause" | "ask cancel":
            assert (run.status, run.wanted) == ("running", verb)
            assert run.error == f"{verb} asked for at {AT}"
        case "ask resume":
            assert (run.status, run.wanted, run.error) == ("running", "resume", None)
        case "queued":
            assert (run.status, run.wanted, run.error) == ("queued", None, None)
        case "paused":
            assert run.error == f"paused at step 12: pause asked for at {AT}"
            assert (run.status, run.finished_at) == ("paused", None)
        case "cancelled":
            assert run.error == f"cancelled at step 12: cancel asked for at {AT}"
            assert run.status == "cancelled"
            assert run.finished_at is not None


@pytest.mark.parametrize("daemon_ends", [False, True])
@pytest.mark.parametrize(
    ("wanted", "end", "becomes"),
    [
        (None, "interrupted", "interrupted"),
        (None, "failed", "failed"),
        (None, "queued", "queued"),
        ("pause", "interrupted", "paused"),
        ("pause", "queued", "paused"),
        ("pause", "failed", "failed"),
        ("cancel", "interrupted", "cancelled"),
        ("cancel", "queued", "cancelled"),
        ("cancel", "failed", "cancelled"),
        ("resume", "interrupted", "queued"),
        ("resume", "queued", "queued"),
        ("resume", "failed", "failed"),
    ],
)
def test_what_becomes_of_a_running_run(
    wanted: Wanted | None, end: RunStatus, becomes: RunStatus, *, daemon_ends: bool
) -> None:
    run = run_in("running", wanted)
    found = as_wanted(run, RunEnd(end, "the cause"), daemon_ends=daemon_ends)
    if daemon_ends and (wanted, end) == ("resume", "interrupted"):
        becomes = "interrupted"
    assert found.status == becomes
    if found.status in ("paused", "cancelled"):
        assert found.reason == f"{becomes} at step 12: {wanted} asked for at {AT}"
