"""bench.recovery finds what it looks for, and has found nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.recovery import Told, broken, lost_examples
from bench.recovery_notes import newest, of_run
from bench.recovery_strikes import plan
from tests.service.daemon import ROOT

PROMISED = {
    "kills",
    "steps_lost",
    "steps_lost_bound",
    "examples_lost",
    "versions_lost",
    "adapter_equal",
}


def note(folder: Path, run_id: int, pid: int, *events: dict[str, Any], tail: str = "") -> None:
    path = folder / str(run_id) / f"{pid:020d}-{pid}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + tail)


def began(resumed_from: int | None) -> dict[str, Any]:
    return {"event": "started", "resumed_from": resumed_from}


def step(number: int, loss: float = 0.5) -> dict[str, Any]:
    figures = ("learning_rate", "grad_norm", "tokens", "label_tokens", "epoch")
    return {"event": "step", "step": number, "loss": loss} | dict.fromkeys(figures, 1)


def test_steps_that_are_done_again_are_counted_to_who_was_killed(tmp_path: Path) -> None:
    note(tmp_path, 7, 1, began(None), *map(step, range(1, 14)), tail='{"event": "st')
    note(tmp_path, 7, 2, began(10), step(11), step(12))
    note(tmp_path, 7, 3, {"event": "phase", "phase": "loading"})  # killed before it began
    note(tmp_path, 7, 4, began(10))  # killed at once: nothing more is lost
    note(tmp_path, 7, 5, began(10), *map(step, range(11, 21)))
    note(tmp_path, 7, 6, began(20), step(21))
    note(tmp_path, 8, 9, began(None), step(1))
    found = of_run(tmp_path, 7)
    assert found.lost == {1: 3, 2: 2}
    assert sorted(found.steps) == list(range(1, 22))
    assert found.differing == []
    latest = newest(tmp_path)
    assert latest is not None
    assert (latest.run_id, latest.pid) == (8, 9)


def test_steps_that_give_something_else_the_second_time_are_found(tmp_path: Path) -> None:
    note(tmp_path, 1, 1, began(None), step(1), step(2))
    note(tmp_path, 1, 2, began(1), step(2, loss=0.5000001), step(3))
    assert of_run(tmp_path, 1).differing == [2]


def test_plans_are_of_a_seed_and_hit_everything() -> None:
    assert plan(20, 1) == plan(20, 1) != plan(20, 2)
    strikes = plan(20, 1)
    assert {strike.whom for strike in strikes} == {"worker", "daemon", "both"}
    assert len({strike.when for strike in strikes}) == 6
    for whom in ("worker", "daemon"):
        assert sum(strike.whom in (whom, "both") for strike in strikes) >= 8
    assert sum(strike.when == "training" for strike in strikes) >= 12


def test_a_lost_or_changed_example_is_found() -> None:
    told = Told(examples={1: ("phone", "a", "now"), 2: ("phone", "b", "now")})
    assert lost_examples(told, told.examples) == []
    assert lost_examples(told, {1: ("phone", "a", "now")}) == [2]
    assert lost_examples(told, told.examples | {1: ("phone", "a", "later")}) == [1]


GOOD = {
    "kills": 4,
    "kills_amid_training": 3,
    "steps_lost": 12,
    "steps_lost_bound": 40,
    "steps_lost_most": 9,
    "checkpoint_every_steps": 10,
    "examples_lost": 0,
    "invented_examples": 0,
    "versions_lost": 0,
    "versions": 3,
    "runs": 3,
    "adapter_equal": True,
    "losses_equal": True,
    "inexact_versions": 0,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kills", 3),
        ("kills_amid_training", 1),
        ("steps_lost", 41),
        ("steps_lost_most", 11),
        ("examples_lost", 1),
        ("invented_examples", 1),
        ("versions_lost", 1),
        ("versions", 2),
        ("runs", 0),
        ("adapter_equal", False),
        ("losses_equal", False),
        ("inexact_versions", 1),
    ],
)
def test_every_broken_promise_is_told(name: str, value: Any) -> None:
    assert broken(GOOD, 4) == []
    assert broken(GOOD | {name: value}, 4) != []


def bench(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.recovery", "--json", "--folder", str(folder), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert set(found) >= PROMISED
    return done.returncode, found


@pytest.mark.slow
def test_four_kills_lose_nothing(tmp_path: Path) -> None:
    code, found = bench(tmp_path, "--kills", "4", "--adapters", "2")
    assert (code, found["broken"]) == (0, []), found
    assert (found["kills"], found["steps_lost_bound"]) == (4, 40)
    assert (found["examples_lost"], found["versions_lost"]) == (0, 0)
    assert (found["adapter_equal"], found["losses_equal"]) == (True, True)
    assert found["examples"] > 100
    assert found["kills_amid_training"] >= 2
    assert len(found["killed"]) == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_worker_that_saves_seldom_and_resumes_wrongly_is_found_out(tmp_path: Path) -> None:
    faulty = ("--worker", "tests.service.faulty_worker")
    code, found = bench(tmp_path, "--kills", "3", "--adapters", "1", *faulty)
    assert code == 1
    assert not found["adapter_equal"]
    assert not found["losses_equal"]
    assert found["steps_lost_most"] > found["checkpoint_every_steps"]
    assert len(found["broken"]) >= 3
