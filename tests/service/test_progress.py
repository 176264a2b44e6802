import itertools
from typing import Any

import pytest

from api_schemas.runs import Run
from service.runs.progress import MOST_LOSSES, SECONDS_BETWEEN_WRITES, Progress
from service.runs.worker_events import Event, EventError, parse


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def step(number: int, total: int = 10_000, loss: float = 1.0) -> Event:
    line = (
        f'{{"event":"step","run":1,"step":{number},"total":{total},"epoch":0.1,"loss":{loss},'
        '"learning_rate":0.001,"tokens":9,"label_tokens":1,"grad_norm":1.0,"seconds":0.1}'
    )
    return parse(line.encode())


def feed(progress: Progress, events: list[Event]) -> list[dict[str, Any]]:
    """What was written to the database."""
    writes = []
    for event in events:
        if values := progress.due(now=progress.take(event)):
            writes.append(values)
            progress.written()
    return writes


def test_a_storm_of_steps_makes_two_writes_a_second() -> None:
    clock = Clock()
    progress = Progress([], clock=clock)
    writes = 0
    for number in range(1, 1001):  # ten seconds of a hundred steps a second
        clock.now += 0.01
        writes += len(feed(progress, [step(number)]))
    assert 15 <= writes <= 10 / SECONDS_BETWEEN_WRITES + 1
    left = progress.due(now=True)
    assert left["step"] == 1000  # nothing is lost, only late
    assert len(left["losses"]) == 1000


def test_the_last_step_is_not_late() -> None:
    progress = Progress([], clock=Clock())
    writes = feed(progress, [step(1, total=3), step(2, total=3), step(3, total=3)])
    assert [write["step"] for write in writes] == [1, 3]


def test_what_could_not_be_written_stays_due() -> None:
    progress = Progress([], clock=Clock())
    progress.take(step(4))
    assert progress.due(now=True)["step"] == 4
    progress.take(parse(b'{"event":"phase","run":1,"phase":"exporting"}'))
    assert progress.due(now=True) == progress.due(now=True)
    assert progress.due(now=True)["step"] == 4
    progress.written()
    assert progress.due(now=True) == {}


def test_the_loss_curve_stays_small_and_in_order() -> None:
    progress = Progress([], clock=Clock())
    for number in range(1, 50_001):
        progress.take(step(number))
    losses = progress.due(now=True)["losses"]
    assert MOST_LOSSES / 4 <= len(losses) <= MOST_LOSSES
    steps = [point[0] for point in losses]
    assert steps == sorted(set(steps))
    assert max(b - a for a, b in itertools.pairwise(steps)) <= 128


def test_steps_that_come_again_replace_what_they_were() -> None:
    progress = Progress([[1, 3.0], [2, 2.0], [3, 1.5]], clock=Clock())
    progress.take(step(2, loss=2.5))
    assert progress.due(now=True)["losses"] == [[1, 3.0], [2, 2.5]]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[1]",
        b"{}",
        b'{"event":"step","run":1}',
        b'{"event":"dance","run":1}',
        b'{"event":"phase","run":"one","phase":"x"}',
        b'{"event":"evaluating","run":1,"done":-1,"total":2}',
        b'{"event":"evaluating","run":1,"done":1e999,"total":2}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_is_no_event_is_said_to_be_none(line: bytes) -> None:
    with pytest.raises(EventError):
        parse(line)


def checkpoint(number: int) -> Event:
    return parse(b'{"event":"checkpoint","run":1,"step":%d}' % number)


def started(resumed_from: int | None) -> Event:
    where = b"null" if resumed_from is None else b"%d" % resumed_from
    return parse(
        b'{"event":"started","run":1,"total_steps":9,"resumed_from":%s,"engine":{},'
        b'"exact_resume":true,"exact_resume_reason":null}' % where
    )


@pytest.mark.parametrize(
    ("before", "events", "step", "ends_the_row"),
    [
        (None, [checkpoint(0)], 0, True),
        (None, [started(None)], None, False),
        (5, [started(5)], 5, False),
        (5, [started(5), checkpoint(5)], 5, False),
        (5, [started(5), checkpoint(6)], 6, True),
        (5, [started(8)], 8, True),  # the daemon was dead when that one was written
        (5, [started(2)], 2, False),  # the newest was damaged
        (5, [started(2), checkpoint(4)], 4, True),
    ],
)
def test_only_a_new_checkpoint_ends_a_row_of_kills(
    before: int | None, events: list[Event], step: int | None, ends_the_row: bool
) -> None:
    progress = Progress([], before, Clock())
    for event in events:
        progress.take(event)
    due = progress.due(now=True)
    assert due["checkpoint_step"] == step
    assert due.get("kills") == (0 if ends_the_row else None)


def test_what_is_forgotten_is_a_total_and_written_at_once() -> None:
    progress = Progress([], clock=Clock())
    lines = [b'{"event":"forgot","run":1,"total":%d,"step":4}' % total for total in (2, 5, 5)]
    assert feed(progress, [parse(line) for line in lines]) == [
        {"forgotten": 2},
        {"forgotten": 5},
        {"forgotten": 5},
    ]
    with pytest.raises(EventError, match="total"):
        parse(b'{"event":"forgot","run":1,"total":-1,"step":4}')


def test_what_watchers_are_told_are_fields_of_the_run() -> None:
    started = (
        b'{"event":"started","run":1,"total_steps":9,"resumed_from":4,"engine":{"a":1},'
        b'"exact_resume":true,"exact_resume_reason":null}'
    )
    told = {
        started: {
            "step": 4,
            "total_steps": 9,
            "resumed_from": 4,
            "exact_resume": True,
            "exact_resume_reason": None,
        },
        b'{"event":"phase","run":1,"phase":"training"}': {"phase": "training"},
        b'{"event":"evaluating","run":1,"done":3,"total":8}': {
            "evaluated": 3,
            "evaluating_total": 8,
        },
        b'{"event":"checkpoint","run":1,"step":5}': {"step": 5, "checkpoint_step": 5},
        b'{"event":"forgot","run":1,"total":2,"step":5}': {"forgotten": 2},
        b'{"event":"cut","run":1,"example_id":5,"tokens":7}': None,
        b'{"event":"failed","run":1,"step":5,"error":"the cause"}': None,
    }
    for line, expected in told.items():
        assert Progress.told(parse(line)) == expected
        assert expected is None or set(expected) <= set(Run.model_fields)
    assert set(Progress.told(step(3)) or {}) <= set(Run.model_fields)
