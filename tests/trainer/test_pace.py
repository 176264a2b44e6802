"""The worker keeps to its duty, and the rests change nothing that it computes."""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer.workers import (
    CANARY,
    Worker,
    adapter_bytes,
    delete,
    manifest_of,
    run_to_the_end,
    step_numbers,
    write_spec,
)
from trainer.pace import Pace

MOMENT = 60
"""Seconds that a busy machine may take for what needs none; a rest here is of hours."""


@pytest.fixture
def pace() -> Iterator[Pace]:
    pace = Pace()
    yield pace
    os.close(pace._woken)
    os.close(pace._wake)


def on_time(attempt: Callable[[], bool]) -> bool:
    """Whether an attempt took no longer than it should: a busy machine delays some, not all."""
    return any(attempt() for _ in range(5))


def test_full_duty_never_rests(pace: Pace) -> None:
    pace.worked(3600)
    began = time.monotonic()
    assert pace.rest()
    assert time.monotonic() - began < MOMENT


@pytest.mark.parametrize(("duty", "seconds"), [(0.5, 0.3), (0.25, 0.9)])
def test_rests_for_what_was_worked(pace: Pace, duty: float, seconds: float) -> None:
    pace.duty = duty
    assert not pace.rest(), "a new duty wakes once, so that nothing that is asked is overlooked"

    def attempt() -> bool:
        pace.worked(0.2)
        pace.worked(0.1)
        rested_before = pace.rested
        began = time.monotonic()
        assert pace.rest()
        took = time.monotonic() - began
        assert seconds - 0.05 < took
        assert pace.rested - rested_before == pytest.approx(took, abs=0.4)
        again = time.monotonic()
        assert pace.rest(), "what has been rested for is not rested for again"
        return took < seconds + 0.2 and time.monotonic() - again < 0.1

    assert on_time(attempt)


def test_a_rest_that_was_broken_off_goes_on(pace: Pace) -> None:
    pace.duty = 0.1
    pace.rest()

    def attempt() -> bool:
        pace.worked(0.2)
        threading.Timer(1.2, pace.wake).start()
        began = time.monotonic()
        assert not pace.rest()
        broken_off = time.monotonic() - began
        assert broken_off > 1.15
        assert pace.rest()
        took = time.monotonic() - began
        assert took > 1.75
        return broken_off < 1.75 and took < 2.9  # not from its beginning

    assert on_time(attempt)


@pytest.mark.parametrize(("first", "then", "seconds"), [(0.01, 1.0, 0.3), (0.5, 0.1, 1.8)])
def test_a_new_duty_holds_for_the_present_rest(
    pace: Pace, first: float, then: float, seconds: float
) -> None:
    def attempt() -> bool:
        pace.duty = first
        pace.rest()
        pace.worked(0.2 if then < 1 else 1000)

        def change() -> None:
            pace.duty = then

        threading.Timer(0.1 if then < 1 else 0.3, change).start()
        began = time.monotonic()
        while not pace.rest():
            pass
        took = time.monotonic() - began
        assert took > seconds - 0.05
        return took < seconds + 0.5

    assert on_time(attempt)


def test_wakes_that_nobody_waits_for_never_block_and_never_pile_up(pace: Pace) -> None:
    for _ in range(100_000):
        pace.wake()
    woken = 0
    while not pace.rest():
        woken += 1
    assert woken <= 16


def test_a_rest_of_centuries_can_be_left(pace: Pace) -> None:
    pace.duty = 1e-9
    pace.rest()
    pace.worked(1e6)
    threading.Timer(0.1, pace.wake).start()
    assert not pace.rest()


@pytest.mark.parametrize("duty", [0.0, -0.5, 1.001, float("nan"), float("inf")])
def test_an_impossible_duty_is_refused(pace: Pace, duty: float) -> None:
    with pytest.raises(ValueError, match="expected a duty above 0"):
        pace.duty = duty
    assert pace.duty == 1


def test_rests_change_neither_losses_nor_the_adapter(home: Path) -> None:
    """The worker's share of the time is what was asked for, and all else is as without."""
    write_spec(home, 1)
    full = run_to_the_end(home, 1)

    write_spec(home, 2)
    worker = Worker(home, 2)
    seen = worker.until("phase", phase="evaluating_before")
    worker.write(b"duty 0.300\n")
    seen += worker.until("phase", phase="training")
    ends, works = [], []
    for event in worker:
        seen.append(event)
        if event["event"] == "step":
            ends.append(time.monotonic())
            works.append(event["seconds"])
            if event["step"] == 12:
                worker.write(b"duty 1\n")
    assert worker.wait()[0] == 0, worker.log_text()
    assert step_numbers(seen) == step_numbers(full)
    assert adapter_bytes(home, 2) == adapter_bytes(home, 1)
    for what in ("phase", "checkpoint"):
        assert [e for e in seen if e["event"] == what] == [
            {**e, "run": 2} for e in full if e["event"] == what
        ]
    ours, theirs = manifest_of(home, seen[-1]), manifest_of(home, full[-1])
    assert ours["metrics"] == theirs["metrics"]
    assert ours["holdout_rows"] == theirs["holdout_rows"]
    # Between the ends of two steps lie a rest for the first and the work of the second; what a
    # busy machine adds to that makes the share smaller, never larger.
    shares = [
        worked / (after - before)
        for worked, before, after in zip(works, ends, ends[1:], strict=False)
    ]
    assert 0.1 < statistics.median(shares) < 0.5
    assert sum(works[:-1]) * (1 / 0.3 - 1) <= ends[-1] - ends[0]


def test_a_rest_is_left_at_once(home: Path) -> None:
    """By a new duty, by a deletion, whose text must go, and by the wish to stop."""
    write_spec(home, 1, steps=400, checkpoint_every_steps=100)
    worker = Worker(home, 1)
    worker.until("phase", phase="training")
    worker.write(b"duty 0.000001\n")
    time.sleep(1.5)  # it rests for hours now
    worker.write(b"exam")
    delete(home, 1)
    worker.write(b"ples\n")
    said_at = time.monotonic()
    worker.until("forgot", total=1)
    worker.until("checkpoint")
    assert time.monotonic() - said_at < MOMENT

    worker.write(b"duty 1.000\nduty 0.0")
    said_at = time.monotonic()
    worker.until("step")
    worker.until("step")
    assert time.monotonic() - said_at < MOMENT
    worker.write(b"00001\n")
    time.sleep(2)
    worker.process.send_signal(signal.SIGTERM)
    said_at = time.monotonic()
    code, rest = worker.wait()
    assert time.monotonic() - said_at < MOMENT
    assert code == 75, worker.log_text()
    assert rest[-1]["reason"] == "SIGTERM"
    worked = sum(event["seconds"] for event in rest if event["event"] == "step")
    assert worked < 1, "the duty that came in two pieces was kept to"


def test_the_daemons_end_is_noticed_in_a_rest(home: Path) -> None:
    write_spec(home, 1, steps=400)
    worker = Worker(home, 1)
    worker.until("phase", phase="evaluating_before")
    worker.write(b"duty 0.000001\n")  # the measuring before the steps rests as well
    time.sleep(1)
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    code, rest = worker.wait()
    assert code == 75, worker.log_text()
    assert rest[-1]["reason"] == "daemon gone"


def test_what_makes_no_sense_does_nothing(home: Path) -> None:
    write_spec(home, 1, steps=400)
    worker = Worker(home, 1)
    worker.until("phase", phase="training")
    for line in (
        b"duty 0\n",
        b"duty 0.000\n",
        b"duty -1\n",
        b"duty 1.5\n",
        b"duty nan\n",
        b"duty 1e-9\n",
        b"duty  0.000001\n",
        b"duty 0.000001 \n",
        b"duty \xd9\xa0.1\n",
        b"duty\n\n\n",
        b"\0\xff\xfe\x80\n" + bytes(range(11, 256)) + b"\n",
        f"{CANARY} in what nobody should log\n".encode(),
        b"x" * 100_000 + b"duty 0.000001\n",
        b"duty 0.000001" + b" " * 10_000 + b"\n",
    ):
        worker.write(line)
    worker.write(b"duty 0.9")  # the line's end never comes
    for _ in range(3):
        worker.until("step")
    time.sleep(0.5)
    worker.until("step")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait()[0] == 75, worker.log_text()
    assert "was not understood" in worker.log_text()
    assert CANARY not in worker.log_text()


def test_the_worker_is_nice_in_all_its_threads(home: Path) -> None:
    write_spec(home, 1, steps=400)
    spec = home / "runs/1/spec.json"
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "threads": 3}))
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    worker = Worker(home, 1, nice=7, forked=False)
    worker.until("step", step=2)
    threads = [int(path.name) for path in Path(f"/proc/{worker.process.pid}/task").iterdir()]
    assert len(threads) >= 3
    assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} == {min(19, ours + 7)}
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait()[0] == 75
