"""Whatever happened to a run: its version says by which tombstones it is the run it is."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.workers import (
    Worker,
    adapter_bytes,
    at,
    delete,
    manifest_of,
    run_to_the_end,
    step_numbers,
    write_spec,
)

STEPS = 8
SETTINGS = {"steps": STEPS, "batch_size": 4, "checkpoint_every_steps": 3}


def ordeal(chance: random.Random) -> list[dict[str, Any]]:
    """Deletions, with and without notice, and at last a kill or a stop."""
    script = []
    for step in sorted(chance.sample(range(1, STEPS), 2)):
        what = chance.choice(["delete", "delete quietly"])
        script.append(at(what, *chance.sample(range(1, 81), 6), event="step", step=step))
    last = {"event": chance.choice(["step", "checkpoint"])}
    script.append(at(chance.choice(["kill", "terminate"]), **last))
    return script


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_run_is_its_list_of_ids_and_its_tombstones(home: Path, seed: int) -> None:
    """The reference: one process, the same deletions, each right after the step that was named."""
    chance = random.Random(seed)
    shutil.copy(home / "lorad.db", home / "full.db")
    write_spec(home, 1, **SETTINGS)
    numbers = {}
    for _ in range(3):
        worker = Worker(home, 1, *ordeal(chance))
        code, events = worker.wait()
        assert code in (0, 75, -9), worker.log_text()
        numbers |= step_numbers(events)
        if code == 0:
            break
        delete(home, *chance.sample(range(1, 81), 2))
    events = run_to_the_end(home, 1)
    numbers |= step_numbers(events)
    manifest = manifest_of(home, events[-1])
    assert manifest["exact_resume"] is True

    shutil.copy(home / "full.db", home / "lorad.db")
    write_spec(home, 2, **SETTINGS)
    by_step: dict[int, list[int]] = {}
    for one in manifest["forgotten"]:
        by_step.setdefault(one["from_step"], []).append(one["example_id"])
    delete(home, *by_step.pop(0, []))
    script = [at("delete", *ids, event="step", step=step) for step, ids in sorted(by_step.items())]
    reference = run_to_the_end(home, 2, *script)
    expected = manifest_of(home, reference[-1])
    assert step_numbers(reference) == numbers
    assert adapter_bytes(home, 2) == adapter_bytes(home, 1)
    assert manifest["forgotten"] == expected["forgotten"]
    rows, others = manifest["holdout_rows"], expected["holdout_rows"]
    assert [row["example_id"] for row in rows] == [row["example_id"] for row in others]
    for side in ("before", "after"):
        # Whether a row went before or after the base was measured isn't said, and the scores of
        # its neighbours, computed together with it, are rounded differently.
        nlls, expected_nlls = ([row[side]["label_nll"] for row in part] for part in (rows, others))
        assert nlls == pytest.approx(expected_nlls, abs=1e-5)
