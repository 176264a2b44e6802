"""What rows of kills and crashes do to a run, for any order of them."""

import itertools
import time
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.runs.backoff import LONGEST_MS, goes_on, goes_on_at, waits
from service.runs.run_end import RunEnd
from service.runs.setbacks import bear, found_checkpoint
from storage.tables import Run

NOW = 1_800_000_000_000
RETRY = 30.0


def kill(step: int | None = 7) -> RunEnd:
    return RunEnd("interrupted", "killed by SIGKILL at step 7", "kill", step, backs_off=True)


def crash(step: int | None = 7, setback: Literal["crash", "hang"] = "crash") -> RunEnd:
    return RunEnd("interrupted", "SIGSEGV; see LOG", setback, step, backs_off=True)


def waited(run: Run) -> float:
    assert run.not_before is not None
    return (run.not_before - NOW) / 1000


def test_three_kills_in_a_row_halve_and_the_wait_doubles() -> None:
    run = Run(adapter_id=1)
    seen = []
    for _ in range(7):
        end = bear(run, kill(), NOW, RETRY)
        assert end.status == "interrupted"
        seen.append((run.kills, run.halvings, waited(run)))
    assert seen == [
        (1, 0, 30),
        (2, 0, 60),
        (0, 1, 120),
        (1, 1, 30),
        (2, 1, 60),
        (0, 2, 120),
        (1, 2, 30),
    ]


def test_the_halving_is_said() -> None:
    run = Run(adapter_id=1, kills=2, halvings=1)
    assert "with 1/4 of the checkpoint interval" in str(bear(run, kill(), NOW, RETRY).reason)


def test_a_new_checkpoint_ends_the_row_but_keeps_the_halvings() -> None:
    run = Run(adapter_id=1, kills=2, halvings=1, checkpoint_step=5)
    found_checkpoint(run, 5)
    assert run.kills == 2
    found_checkpoint(run, 6)
    assert (run.kills, run.halvings, run.checkpoint_step) == (0, 1, 6)
    found_checkpoint(run, None)  # gone with a damaged disk
    assert run.checkpoint_step is None


@given(st.lists(st.one_of(st.none(), st.integers(0, 50)), max_size=60))
def test_kills_never_fail_a_run_nor_let_it_wait_longer_than_an_hour(
    checkpoints: list[int | None],
) -> None:
    run = Run(adapter_id=1)
    row = 0
    for checkpoint in checkpoints:
        grown = checkpoint is not None and (
            run.checkpoint_step is None or checkpoint > run.checkpoint_step
        )
        row = 1 if grown else row + 1
        found_checkpoint(run, checkpoint)
        before = run.halvings
        end = bear(run, kill(), NOW, RETRY)
        assert end.status == "interrupted"
        assert run.not_before is not None
        assert NOW + 30_000 <= run.not_before <= NOW + LONGEST_MS
        assert run.halvings - before <= (row >= 3)
        assert run.halvings <= 4


def test_at_the_last_halving_the_wait_still_grows_to_an_hour() -> None:
    run = Run(adapter_id=1, halvings=4)
    waits_seen = []
    for _ in range(10):
        bear(run, kill(), NOW, RETRY)
        waits_seen.append(waited(run))
    assert waits_seen == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@pytest.mark.parametrize("kinds", list(itertools.product(["crash", "hang"], repeat=3)))
def test_three_crashes_or_hangs_at_one_step_fail_it_with_the_cause(
    kinds: tuple[Literal["crash", "hang"], ...],
) -> None:
    run = Run(adapter_id=1, checkpoint_step=5)
    ends = [bear(run, crash(7, kind), NOW, RETRY) for kind in kinds]
    assert [end.status for end in ends] == ["interrupted", "interrupted", "failed"]
    assert str(ends[0].reason).startswith("crashed at step 7, the first time: SIGSEGV; see LOG; ")
    assert "the second time" in str(ends[1].reason)
    assert ends[2].reason == "three times at step 7: SIGSEGV; see LOG"


def test_another_step_begins_anew_and_kills_in_between_do_not() -> None:
    run = Run(adapter_id=1)
    for step in (7, 7, 8, 7, 7):
        assert bear(run, crash(step), NOW, RETRY).status == "interrupted"
        assert bear(run, kill(), NOW, RETRY).status == "interrupted"
    assert run.crashes == 2
    assert bear(run, crash(7), NOW, RETRY).status == "failed"


def test_a_crash_that_demoted_an_engine_begins_the_count_anew() -> None:
    run = Run(adapter_id=1, checkpoint_step=5)
    for _ in range(2):
        assert bear(run, crash(7), NOW, RETRY).status == "interrupted"
    end = bear(run, replace(crash(7, "hang"), demoted="qnn"), NOW, RETRY)
    assert (end.status, run.crashes, waited(run)) == ("interrupted", 0, 30)
    assert str(end.reason).startswith("crashed at step 7: SIGSEGV; see LOG; qnn is not used any ")
    assert "goes on by itself from step 5 after" in str(end.reason)
    ends = [bear(run, crash(7), NOW, RETRY) for _ in range(3)]  # of the other engine
    assert [end.status for end in ends] == ["interrupted", "interrupted", "failed"]


def test_crashes_while_loading_are_at_one_step() -> None:
    run = Run(adapter_id=1)
    ends = [bear(run, crash(None), NOW, RETRY) for _ in range(3)]
    assert ends[2].status == "failed"
    assert str(ends[2].reason).startswith("three times while loading: ")


def test_a_stop_by_somebody_else_counts_nothing_but_waits() -> None:
    run = Run(adapter_id=1, kills=1, crashes=1, crash_step=7)
    stop = RunEnd("interrupted", "stopped by SIGTERM at step 7", "stop", 7, backs_off=True)
    end = bear(run, stop, NOW, RETRY)
    assert (run.kills, run.crashes, waited(run)) == (1, 1, 30)
    assert (
        end.reason
        == "stopped by SIGTERM at step 7; goes on by itself from the start after "
        + (goes_on(None, run.not_before).rpartition("after ")[2])
    )


@pytest.mark.parametrize("wanted", ["pause", "cancel"])
def test_a_run_that_is_to_stand_still_is_not_said_to_go_on(
    wanted: Literal["pause", "cancel"],
) -> None:
    run = Run(adapter_id=1, wanted=wanted)
    assert "goes on" not in str(bear(run, kill(), NOW, RETRY).reason)
    assert run.not_before is None
    assert run.kills == 1


def test_what_was_asked_for_waits_for_nothing() -> None:
    run = Run(adapter_id=1)
    asked = RunEnd("interrupted", "the window ended", None, 7)
    assert bear(run, asked, NOW, RETRY) is asked
    assert (run.kills, run.not_before) == (0, None)
    killed = RunEnd("interrupted", "the window ended", "kill", 7)
    assert bear(run, killed, NOW, RETRY) is killed
    assert (run.kills, run.not_before) == (1, None)


def test_the_words_say_from_where_and_when_by_the_clock_of_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Europe/Berlin")
        time.tzset()
        words = goes_on(40, 1_800_000_000_000)
    time.tzset()
    assert words == "goes on by itself from step 40 after 09:00:00 CET"
    assert goes_on(0) == "goes on by itself from step 0"


@given(st.integers(0, 2**40), st.floats(0, 3600), st.integers(1, 10**6))
def test_a_wait_never_shrinks_and_is_over_when_it_says(now: int, retry: float, times: int) -> None:
    at = goes_on_at(now, retry, times)
    assert now <= at <= goes_on_at(now, retry, times + 1) <= now + LONGEST_MS
    assert not waits(at, at)
    assert waits(at, now) == (at > now)


def test_a_wait_from_before_the_clock_was_set_back_is_over() -> None:
    assert waits(NOW + LONGEST_MS, NOW)
    assert not waits(NOW + LONGEST_MS + 1, NOW)
    assert not waits(None, NOW)
