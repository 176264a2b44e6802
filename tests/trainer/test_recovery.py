"""A run that was killed again and again is, number for number, the run that wasn't."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.workers import (
    Worker,
    adapter_bytes,
    at,
    manifest_of,
    run_to_the_end,
    step_numbers,
    write_spec,
)
from trainer.dataset import batch_ids
from trainer.safetensors_file import SafetensorsFile

STEPS = 7
SETTINGS = {"steps": STEPS, "checkpoint_every_steps": 3, "batch_size": 4}
KEEP = at("copy checkpoints", event="phase", phase="exporting")


def started(events: list[dict[str, Any]]) -> dict[str, Any]:
    return next(event for event in events if event["event"] == "started")


def numbers(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """All that a run says of each step but its own id and the time that it took."""
    return {
        event["step"]: {k: v for k, v in event.items() if k not in ("run", "seconds")}
        for event in events
        if event["event"] == "step"
    }


def kept(home: Path, run_id: int) -> dict[str, bytes]:
    """The tensors of the last checkpoint: adapter, and the optimizer's moments."""
    folder = home / f"runs/{run_id}/kept/step-{STEPS:08d}"
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def killed(home: Path, run_id: int, *script: dict[str, Any]) -> list[dict[str, Any]]:
    code, events = Worker(home, run_id, *script).wait()
    assert code == -signal.SIGKILL
    return events


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine", ["torch_cpu", "onnx_cpu", pytest.param("qnn", marks=pytest.mark.emulator)]
)
def test_killed_at_any_stage_and_twice_in_a_row_it_is_the_same_run(home: Path, engine: str) -> None:
    for run_id in (1, 2):
        write_spec(home, run_id, engine, **SETTINGS)
    straight = run_to_the_end(home, 1, KEEP)
    assert manifest_of(home, straight[-1])["engine"]["fallbacks"] == []

    killed(home, 2, at("kill", event="evaluating"))  # nothing is saved yet
    events = killed(home, 2, at("kill", event="step", step=5))
    assert started(events)["resumed_from"] is None
    leftover = home / "runs/2/checkpoints/.tmp-step-00000006-1"
    leftover.mkdir()
    second = killed(home, 2, at("kill", event="step", step=4))  # before its next checkpoint
    assert started(second)["resumed_from"] == 3
    third = killed(home, 2, at("kill", event="evaluating"))  # with all steps done
    assert started(third)["resumed_from"] == 3, "the second kill lost nothing more"
    assert not leftover.exists()
    last = run_to_the_end(home, 2, KEEP)
    assert started(last)["resumed_from"] == STEPS
    assert started(last)["exact_resume"] is True

    assert sorted(numbers(second)) == [4]
    assert sorted(numbers(third)) == [4, 5, 6, 7]
    expected = numbers(straight)
    for part in (events, second, third):
        assert numbers(part) == {step: expected[step] for step in numbers(part)}
    assert numbers(events) | numbers(third) == expected
    assert adapter_bytes(home, 2) == adapter_bytes(home, 1)
    assert kept(home, 2) == kept(home, 1)
    assert kept(home, 1).keys() == {"adapter.safetensors", "optimizer.safetensors"}
    ours, theirs = manifest_of(home, last[-1]), manifest_of(home, straight[-1])
    assert ours["metrics"] == theirs["metrics"]
    assert ours["holdout_rows"] == theirs["holdout_rows"]
    folder = home / "adapters/1/versions/run-00000002"
    tensors = SafetensorsFile(folder / "adapter_model.safetensors")
    assert all(tensors.load(name).any() for name in tensors.names() if "lora_B" in name)


@pytest.mark.slow
def test_the_order_of_the_data_goes_on_where_it_was(home: Path) -> None:
    """The steps after a kill are made of the batches that the order names, and of no others."""
    write_spec(home, 1, **SETTINGS)
    killed(home, 1, at("kill", event="step", step=5))
    batches = [batch_ids(range(1, 49), seed=0, batch_size=4, step=step) for step in range(STEPS)]
    others = [one for one in range(1, 49) if one not in {i for b in batches[3:] for i in b}]
    run_to_the_end(home, 1)
    write_spec(home, 2, **SETTINGS)
    killed(home, 2, at("kill", event="step", step=5))
    # With all others gone, and forgotten from step 3 on, nothing in steps 4 to 7 is different.
    run_to_the_end(home, 2, at("delete", *others, event="phase", phase="training"))
    assert adapter_bytes(home, 2) == adapter_bytes(home, 1)


def test_a_changed_interval_is_exact_and_fewer_tokens_at_once_are_said(home: Path) -> None:
    """Halved once both change; with a budget at its floor already only the interval does."""
    for run_id, tokens in ((1, 512), (2, 64)):
        write_spec(home, run_id, **SETTINGS, micro_batch_tokens=tokens)
        killed(home, run_id, at("kill", event="step", step=4))
        events = run_to_the_end(home, run_id, halvings=1)
        assert started(events)["resumed_from"] == 3
        saved = [event["step"] for event in events if event["event"] == "checkpoint"]
        assert saved == [4, 5, 6, 7], "every step instead of every third"
        reason = manifest_of(home, events[-1])["exact_resume_reason"]
        expected = "micro_batch_tokens was 512 and is now 256" if tokens == 512 else None
        assert reason == expected
        assert started(events)["exact_resume"] is (expected is None)


def test_from_the_start_with_less_at_once_is_said_too(home: Path) -> None:
    write_spec(home, 1, **SETTINGS | {"steps": 2})
    events = run_to_the_end(home, 1, halvings=2)
    manifest = manifest_of(home, events[-1])
    assert manifest["exact_resume_reason"] == "micro_batch_tokens was 512 and is now 128"


def change_threads(home: Path) -> str:
    path = home / "runs/1/spec.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"threads": 2}))
    return "threads was 1 and is now 2"


def change_library(home: Path) -> str:
    """As if the checkpoint had been made by another torch."""
    from trainer.checkpoint import _manifest_sha256
    from trainer.durable import file_sha256

    for folder in (home / "runs/1/checkpoints").iterdir():
        state = json.loads((folder / "state.json").read_text())
        now = state["environment"]["version of torch"]
        state["environment"]["version of torch"] = "1.0"
        (folder / "state.json").write_text(json.dumps(state))
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"]["state.json"] = file_sha256(folder / "state.json")
        manifest["sha256"] = _manifest_sha256(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return f"version of torch was 1.0 and is now {now}"


@pytest.mark.parametrize("change", [change_threads, change_library])
def test_other_threads_or_libraries_go_on_and_the_version_says_so(home: Path, change: Any) -> None:
    write_spec(home, 1, **SETTINGS | {"steps": 4})
    killed(home, 1, at("kill", event="step", step=4))
    reason = change(home)
    events = run_to_the_end(home, 1)
    assert started(events)["resumed_from"] == 3
    assert started(events)["exact_resume_reason"] == reason
    manifest = manifest_of(home, events[-1])
    assert (manifest["exact_resume"], manifest["exact_resume_reason"]) == (False, reason)


@pytest.mark.parametrize("damage", ["adapter.safetensors", "manifest.json"])
def test_a_damaged_newest_checkpoint_costs_its_steps_only(home: Path, damage: str) -> None:
    write_spec(home, 1, **SETTINGS | {"steps": 5, "checkpoint_every_steps": 2})
    killed(home, 1, at("kill", event="step", step=5))
    path = home / "runs/1/checkpoints/step-00000004" / damage
    path.write_bytes(path.read_bytes()[:-20])
    worker = Worker(home, 1)
    code, events = worker.wait()
    assert code == 0, worker.log_text()
    assert started(events)["resumed_from"] == 2
    assert "step-00000004 is damaged and passed over" in worker.log_text()
    assert sorted(step_numbers(events)) == [3, 4, 5]
