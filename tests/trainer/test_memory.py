"""What a plan predicts of memory is what the system counts, or more: real workers' peaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.child_process import ALLOCATOR
from tests.trainer.workers import Worker, run_to_the_end, write_spec

ALL_LABELS_256 = [(256, 255)] * 4


def child(home: Path, **case: Any) -> dict[str, Any]:
    weights = str(home / "models/smollm2-135m/weights.lorad")
    asked = json.dumps({"weights": weights, **case})
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainer.memory_child", asked],
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | ALLOCATOR | {"GOMP_SPINCOUNT": "10000"},  # as the worker sets it
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        {"budget_mb": 700, "examples": ALL_LABELS_256},
        {"budget_mb": 590, "examples": [(512, 511)]},
    ],
    ids=["700 MB for four examples of 256 tokens", "recomputed"],
)
def test_a_step_stays_within_what_was_predicted_of_it(
    smollm2_home: Path, case: dict[str, Any]
) -> None:
    found = child(smollm2_home, steps=2, **case)
    assert found["peak_mb"] <= found["predicted_mb"] <= case["budget_mb"]
    assert found["peak_mb"] >= 0.75 * found["predicted_mb"], "a bound that says something"
    recomputed = found["amounts"]["keep_tokens"] < found["amounts"]["micro_batch_tokens"]
    assert recomputed is (case["budget_mb"] < 700)


def bounded(home: Path, run_id: int, memory_mb: int) -> None:
    write_spec(home, run_id, steps=2)
    path = home / f"runs/{run_id}/spec.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"memory_mb": memory_mb}))


def test_a_run_that_can_not_keep_to_its_memory_is_refused_for_good(home: Path) -> None:
    bounded(home, 1, 200)
    code, events = Worker(home, 1).wait()
    assert code == 1
    [failed] = [event for event in events if event["event"] == "failed"]
    assert failed["again"] is False
    assert "expected a run that fits into 200 MB of memory, found that" in failed["error"]
    assert not [event for event in events if event["event"] in ("evaluating", "step")]


def test_with_room_halved_memory_changes_no_number(home: Path) -> None:
    bounded(home, 1, 1024)
    events = run_to_the_end(home, 1, halvings=3)
    [started] = [event for event in events if event["event"] == "started"]
    assert started["exact_resume"] is True
