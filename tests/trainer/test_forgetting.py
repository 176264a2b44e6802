"""Deleted examples are forgotten from the next step on, and the run stays exactly resumable."""

from __future__ import annotations

import json
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
    send_again,
    step_numbers,
    write_spec,
)
from trainer.dataset import batch_ids

STEPS, AT = 6, 2
SETTINGS = {"steps": STEPS, "batch_size": 4, "checkpoint_every_steps": 100}
LATER = batch_ids(range(1, 49), seed=0, batch_size=4, step=AT + 1)[0]
"""A training example whose turn would come after the deletion."""
HELD_OUT = 60
DELETION = at("delete", LATER, HELD_OUT, event="step", step=AT)


def restored(home: Path) -> None:
    """All the examples as they were at first."""
    kept = home / "full.db"
    shutil.copy(kept, home / "lorad.db") if kept.exists() else shutil.copy(home / "lorad.db", kept)


def outcome(home: Path, run_id: int, events: list[dict[str, Any]]) -> dict[str, Any]:
    """All that two runs must agree on to be the same run."""
    manifest = manifest_of(home, events[-1])
    kept = home / f"runs/{run_id}/kept/step-{STEPS:08d}"
    return {
        "steps": step_numbers(events),
        "adapter": adapter_bytes(home, run_id),
        "optimizer": (kept / "optimizer.safetensors").read_bytes(),
        "metrics": manifest["metrics"],
        "rows": manifest["holdout_rows"],
        "forgotten": manifest["forgotten"],
        "skipped": manifest["skipped_example_ids"],
        "exact": (manifest["exact_resume"], manifest["exact_resume_reason"]),
    }


KEEP = at("copy checkpoints", event="checkpoint", step=STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch_cpu", "onnx_cpu"])
def test_however_a_deletion_meets_the_run_it_is_the_same_run(home: Path, engine: str) -> None:
    for run_id in range(1, 5):
        write_spec(home, run_id, engine, **SETTINGS)

    restored(home)  # deleted while the run works on
    live = outcome(home, 1, run_to_the_end(home, 1, DELETION, KEEP))

    restored(home)  # killed right after the deletion's checkpoint
    worker = Worker(home, 2, DELETION, at("kill", event="checkpoint", step=AT))
    code, before = worker.wait()
    assert code == -9
    after = run_to_the_end(home, 2, KEEP)
    assert next(e for e in after if e["event"] == "started")["resumed_from"] == AT
    killed = outcome(home, 2, before + after)

    restored(home)  # deleted while the run was stopped
    worker = Worker(home, 3, at("terminate", event="step", step=AT))
    code, before = worker.wait()
    assert code == 75, worker.log_text()
    delete(home, LATER, HELD_OUT)
    stopped = outcome(home, 3, before + run_to_the_end(home, 3, KEEP))

    assert killed == live
    assert stopped == live
    assert live["exact"] == (True, None)
    assert live["forgotten"] == [
        {"example_id": one, "from_step": AT} for one in sorted((LATER, HELD_OUT))
    ]
    restored(home)
    undisturbed = outcome(home, 4, run_to_the_end(home, 4, KEEP))
    same = {step: numbers for step, numbers in live["steps"].items() if step <= AT + 1}
    assert same.items() <= undisturbed["steps"].items(), "nothing before its turn is different"
    assert live["steps"][AT + 2] != undisturbed["steps"][AT + 2]
    assert live["adapter"] != undisturbed["adapter"]


def test_a_deletion_at_every_point_of_a_run(home: Path) -> None:
    write_spec(home, 1, steps=4, batch_size=4, checkpoint_every_steps=2)
    points: list[tuple[dict[str, Any], int]] = [
        ({"event": "phase", "phase": "loading"}, 0),
        ({"event": "started"}, 0),
        ({"event": "phase", "phase": "evaluating_before"}, 0),
        ({"event": "evaluating"}, 0),
        ({"event": "checkpoint", "step": 0}, 0),
        ({"event": "phase", "phase": "training"}, 0),
        ({"event": "step", "step": 1}, 1),
        ({"event": "checkpoint", "step": 3}, 3),
        ({"event": "step", "step": 4}, 4),
        ({"event": "phase", "phase": "evaluating_after"}, 4),
        ({"event": "evaluating"}, 4),
        ({"event": "phase", "phase": "exporting"}, 4),
    ]
    script = [
        at("delete", 1 + place, 49 + place, **event) for place, (event, _) in enumerate(points)
    ]
    # A notice that gets lost is made up for by the last look.
    script.append(at("delete quietly", 40, 80, event="phase", phase="exporting"))
    events = run_to_the_end(home, 1, *script)
    manifest = manifest_of(home, events[-1])
    expected = {
        example_id: step
        for place, (_, step) in enumerate(points)
        for example_id in (1 + place, 49 + place)
    } | {40: 4, 80: 4}
    found = {one["example_id"]: one["from_step"] for one in manifest["forgotten"]}
    assert found == expected
    assert manifest["skipped_example_ids"] == sorted(expected)
    left = [one for one in range(49, 81) if one not in expected]
    assert [row["example_id"] for row in manifest["holdout_rows"]] == left
    assert manifest["metrics"]["holdout"] == len(left)
    assert manifest["metrics"]["train"] == 48 - len(points) - 1
    assert manifest["exact_resume"] is True
    totals = [event["total"] for event in events if event["event"] == "forgot"]
    assert totals == sorted(totals)
    assert totals[-1] == len(expected)


def test_what_was_forgotten_stays_forgotten_when_it_is_sent_again(home: Path) -> None:
    write_spec(home, 1, **SETTINGS)
    script = (
        at("expire", LATER, event="step", step=AT),
        at("revive", LATER, event="checkpoint", step=AT),
        at("kill", event="step", step=AT + 1),
    )
    assert Worker(home, 1, *script).wait()[0] == -9
    events = run_to_the_end(home, 1)
    forgot = [event for event in events if event["event"] == "forgot"]
    assert [(event["total"], event["step"]) for event in forgot] == [(1, AT)]
    manifest = manifest_of(home, events[-1])
    assert manifest["forgotten"] == [{"example_id": LATER, "from_step": AT}]
    assert manifest["exact_resume"] is True
    assert manifest["metrics"]["train"] == 47


def test_a_text_corrected_under_a_run_at_work_is_forgotten_without_a_notice(home: Path) -> None:
    """At the latest when the next checkpoint is due: a holdout row's score is of the old label."""
    write_spec(home, 1, **SETTINGS | {"checkpoint_every_steps": AT + 2})
    events = run_to_the_end(home, 1, at("revive", LATER, HELD_OUT, event="step", step=AT))
    manifest = manifest_of(home, events[-1])
    assert manifest["forgotten"] == [
        {"example_id": one, "from_step": AT + 2} for one in sorted((LATER, HELD_OUT))
    ]
    assert HELD_OUT not in [row["example_id"] for row in manifest["holdout_rows"]]
    assert manifest["exact_resume"] is True


@pytest.mark.parametrize("label", ["mute", "label-canary"])
def test_an_example_corrected_while_the_run_is_stopped(home: Path, label: str) -> None:
    """With a label the run knows it is trained on anew; with another the run goes on without."""
    write_spec(home, 1, **SETTINGS)
    assert Worker(home, 1, at("terminate", event="step", step=AT)).wait()[0] == 75
    send_again(home, LATER, "another text", label)
    worker = Worker(home, 1)
    code, events = worker.wait()
    assert code == 0, worker.log_text()
    manifest = manifest_of(home, events[-1])
    if label == "mute":
        assert manifest["forgotten"] == []
        assert f"example {LATER} was changed" in manifest["exact_resume_reason"]
    else:
        assert manifest["forgotten"] == [{"example_id": LATER, "from_step": AT}]
        assert manifest["exact_resume"] is True
    assert "canary" not in worker.log_text() + json.dumps(events) + json.dumps(manifest)


def test_a_run_without_a_training_example_left_fails(home: Path) -> None:
    write_spec(home, 1, **SETTINGS)
    code, events = Worker(home, 1, at("delete", *range(1, 49), event="step", step=1)).wait()
    assert code == 1
    assert "none left" in events[-1]["error"]
    assert not (home / "adapters").exists()


def test_a_run_that_cannot_look_stops_and_goes_on_later(home: Path) -> None:
    """It must not train on what may be deleted, nor lose what it has done."""
    write_spec(home, 1, **SETTINGS)
    worker = Worker(home, 1, at("lose database", event="step", step=AT))
    code, events = worker.wait()
    assert code == 75, worker.log_text()
    assert events[-1]["step"] == AT
    assert "DatabaseFileError" in events[-1]["reason"]
    (home / "away.db").rename(home / "lorad.db")
    events = run_to_the_end(home, 1)
    assert sorted(step_numbers(events)) == list(range(AT + 1, STEPS + 1))


def test_no_reader_holds_the_log_while_the_run_works(home: Path) -> None:
    write_spec(home, 1, **SETTINGS)
    moments: list[dict[str, Any]] = [
        {"event": "started"},
        {"event": "evaluating"},
        {"event": "step", "step": 1},
        {"event": "phase", "phase": "exporting"},
    ]
    script = [at("truncate", **event) for event in moments]
    script.insert(3, at("delete", 7, event="step", step=2))
    script.insert(4, at("truncate", event="step", step=3))
    events = run_to_the_end(home, 1, *script)
    assert manifest_of(home, events[-1])["skipped_example_ids"] == [7]


def test_a_run_goes_on_without_a_deleted_active_version(home: Path) -> None:
    write_spec(home, 1, **SETTINGS)
    path = home / "runs/1/spec.json"
    spec = json.loads(path.read_text()) | {"active_version": "adapters/1/versions/run-00000009"}
    path.write_text(json.dumps(spec))
    manifest = manifest_of(home, run_to_the_end(home, 1)[-1])
    assert manifest["metrics"]["active"] is None
