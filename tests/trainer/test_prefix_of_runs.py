"""Runs with an adapter in the top layer: the same bytes, whatever is kept of the layers below."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npu.engine_options import EngineOptions
from npu.opening import open_engine
from npu.weights import FrozenWeights
from tests.trainer.test_dataset_loading import SPEC
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
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.run_adapter import fresh_adapter
from trainer.run_examples import RunExamples
from trainer.run_prefix import run_prefix
from trainer.safetensors_file import SafetensorsFile

STEPS, AT = 6, 2
SETTINGS = {"steps": STEPS, "batch_size": 4, "checkpoint_every_steps": 2}
SEEN = {one for step in range(STEPS) for one in batch_ids(range(1, 49), 0, 4, step)}
LATER = batch_ids(range(1, 49), seed=0, batch_size=4, step=AT + 1)[0]
FIRST = batch_ids(range(1, 49), seed=0, batch_size=4, step=0)[0]

NONE_NEEDED = RunExamples.__new__(RunExamples)
"""Examples that nobody may ask for anything."""


def write_top_spec(home: Path, run_id: int, engine: str = "torch_cpu", megabytes: int = 8) -> None:
    write_spec(home, run_id, engine, **SETTINGS)
    path = home / f"runs/{run_id}/spec.json"
    more = {"top_layers": 1, "prefix_cache_mb": megabytes}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def kept(home: Path) -> dict[int, Path]:
    """The files of kept rows, by example; there is nothing else beside them."""
    root = home / "adapters/1/prefix"
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]
    assert all(path.suffix == ".rows" and path.name[0] != "." for path in files), files
    return {int(path.name.partition("-")[0]): path for path in files}


def outcome(home: Path, run_id: int, events: list[dict[str, Any]]) -> dict[str, Any]:
    manifest = manifest_of(home, events[-1])
    return {
        "steps": step_numbers(events),
        "adapter": adapter_bytes(home, run_id),
        "metrics": manifest["metrics"],
        "exact": (manifest["exact_resume"], manifest["exact_resume_reason"]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch_cpu", "onnx_cpu"])
def test_cold_warm_killed_and_deleted_in_the_middle_it_is_the_same_run(
    home: Path, engine: str
) -> None:
    root = home / "adapters/1/prefix"
    for run_id in range(1, 5):
        write_top_spec(home, run_id, engine)
    cold_events = run_to_the_end(home, 1)
    cold = outcome(home, 1, cold_events)
    assert kept(home).keys() == SEEN
    manifest = manifest_of(home, cold_events[-1])
    assert manifest["top_layers"] == 1
    told = manifest["prefix_cache"]
    assert (told["computed"], told["read"]) == (len(SEEN), 4 * STEPS - len(SEEN))
    tensors = SafetensorsFile(
        home / "adapters/1/versions/run-00000001/adapter_model.safetensors"
    ).names()
    assert all(".layers.1." in name for name in tensors)

    events = run_to_the_end(home, 2)
    assert outcome(home, 2, events) == cold
    assert manifest_of(home, events[-1])["prefix_cache"]["computed"] == 0

    shutil.rmtree(root)
    code, first = Worker(home, 3, at("kill when it keeps", 6, event="started")).wait()
    assert code == -9
    assert list(root.rglob(".*.rows"))
    code, second = Worker(home, 3, at("kill", event="step", step=AT + 1)).wait()
    assert code == -9
    rows = sorted(kept(home).values())  # what the kill left half-written is gone
    rows[0].write_bytes(rows[1].read_bytes())
    rows[2].write_bytes(b"")
    rows[3].unlink()
    third = run_to_the_end(home, 3)
    assert outcome(home, 3, first + second + third) == cold
    told = manifest_of(home, third[-1])["prefix_cache"]
    assert told["read"]

    code, first = Worker(home, 4, at("kill", event="step", step=AT + 1)).wait()
    assert code == -9
    shutil.rmtree(root)
    root.write_bytes(b"")  # all of it is lost, and nothing more can be kept
    second = run_to_the_end(home, 4)
    assert outcome(home, 4, first + second) == cold
    told = manifest_of(home, second[-1])["prefix_cache"]
    assert told["not_written_because"]
    assert told["read"] == 0


def test_what_is_forgotten_is_not_kept(home: Path) -> None:
    write_top_spec(home, 1)
    events = run_to_the_end(home, 1, at("delete", FIRST, LATER, event="step", step=AT))
    assert kept(home).keys() == SEEN - {FIRST, LATER}
    assert manifest_of(home, events[-1])["skipped_example_ids"] == sorted({FIRST, LATER})

    write_top_spec(home, 2)  # deleted between two runs, as the next night begins
    one, another = sorted(kept(home))[:2]
    delete(home, one)
    send_again(home, another, "another text")
    old = kept(home)[another]
    Worker(home, 2, at("kill", event="started")).wait()
    assert not old.exists()
    assert one not in kept(home)


@pytest.mark.slow
def test_a_corrected_example_is_computed_from_its_new_text(home: Path) -> None:
    shutil.copy(home / "lorad.db", home / "full.db")
    outcomes = []
    for run_id, lost in ((1, False), (2, True)):
        shutil.copy(home / "full.db", home / "lorad.db")
        shutil.rmtree(home / "adapters", ignore_errors=True)
        write_top_spec(home, run_id)
        assert Worker(home, run_id, at("terminate", event="step", step=AT)).wait()[0] == 75
        assert FIRST in kept(home)
        send_again(home, FIRST, "quite another text", "mute")
        if lost:
            shutil.rmtree(home / "adapters/1/prefix")
        found = outcome(home, run_id, run_to_the_end(home, run_id))
        assert f"example {FIRST} was changed" in found.pop("exact")[1]
        outcomes.append(found)
    assert outcomes[0] == outcomes[1]


def test_without_top_layers_or_room_for_any_nothing_is_kept(tiny_home: Path) -> None:
    weights = FrozenWeights.open(tiny_home / "models/tiny/weights.lorad")
    config = DecoderConfig.from_json(weights.metadata["config"])
    decoder = Decoder(config, weights, open_engine(weights, "torch_cpu", EngineOptions(threads=1)))
    for layers, megabytes in ((None, 8), (2, 8), (1, 0)):
        spec = replace(SPEC, top_layers=layers, prefix_cache_mb=megabytes)
        adapter = fresh_adapter(config, spec)
        assert run_prefix(tiny_home, spec, decoder, adapter, NONE_NEEDED) is None
    with pytest.raises(ValueError, match="expected 1 to 2 layers to adapt, found 3"):
        fresh_adapter(config, replace(SPEC, top_layers=3))
