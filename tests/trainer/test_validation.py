"""Early stopping: who is held back, the best adapter as the result, and an exact resume."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.weights import FrozenWeights
from storage.database import Database
from tests.trainer.workers import (
    LABELS,
    Worker,
    adapter_bytes,
    at,
    manifest_of,
    run_to_the_end,
    send_again,
    step_numbers,
    write_spec,
)
from trainer.checkpoint import load_newest_checkpoint
from trainer.dataset import load_dataset
from trainer.evaluate import evaluate
from trainer.export.peft import load_peft_folder
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.run_adapter import fresh_adapter
from trainer.run_state import RunState
from trainer.spec import RunSpec
from trainer.tokens import ChatTokenizer
from trainer.validation import choose, mean_nll

STEPS = 12
SETTINGS = {
    "steps": STEPS,
    "batch_size": 4,
    "checkpoint_every_steps": 4,
    "learning_rate": 5e-2,
    "schedule": "constant",
    "validation_fraction": 0.25,
}
EVERY = 48 // (2 * 4)
KEEP = at("copy checkpoints", event="checkpoint", step=STEPS)


def spec_of(home: Path, run_id: int) -> RunSpec:
    return RunSpec.load(home / f"runs/{run_id}/spec.json")


def held_back(spec: RunSpec, same_input: Mapping[int, int] | None = None) -> tuple[int, ...]:
    training = spec.training
    fraction = training.validation_fraction
    return choose(spec.train_example_ids, same_input or {}, training.seed, fraction)


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=60, unique=True),
    st.dictionaries(st.integers(1, 10_000), st.integers(1, 5)),
    st.integers(0, 5),
    st.floats(0, 0.9),
)
def test_who_is_held_back(
    ids: list[int], groups: dict[int, int], seed: int, fraction: float
) -> None:
    same_input: dict[int, int] = {}
    first: dict[int, int] = {}
    for one in ids:
        same_input[one] = first.setdefault(groups.get(one, -one), one)
    chosen = choose(ids, same_input, seed, fraction)
    assert len(chosen) <= round(fraction * len(ids)) or not chosen
    assert len(chosen) < len(ids)
    assert [one for one in ids if one in chosen] == list(chosen)
    for one in ids:
        assert (one in chosen) == (same_input[one] in chosen), "the same text on both sides"
    assert choose(ids, same_input, seed, 0.0) == ()


def test_the_choice_hangs_on_the_seed_and_comes_near_the_share() -> None:
    ids = range(1, 301)
    found = [set(choose(ids, {}, seed, 0.1)) for seed in range(3)]
    assert [len(one) for one in found] == [30, 30, 30]
    assert len(found[0] | found[1] | found[2]) > 70
    whole = set(choose(ids, {}, 0, 0.1))
    assert set(choose([i for i in ids if i != min(whole)], {}, 0, 0.1)) > whole - {min(whole)}


def test_the_best_adapter_is_the_result_and_nothing_held_back_was_trained_on(home: Path) -> None:
    """A rate far too high, so that the last adapter isn't the best."""
    write_spec(home, 1, **SETTINGS)
    events = run_to_the_end(home, 1, KEEP)
    manifest = manifest_of(home, events[-1])
    report = manifest["validation"]
    assert [one["step"] for one in report["measured"]] == list(range(EVERY, STEPS + 1, EVERY))
    losses = {one["step"]: one["label_nll"] for one in report["measured"]}
    assert report["chosen_step"] == min(losses, key=losses.__getitem__)
    assert (report["examples"], manifest["metrics"]["train"]) == (12, 36)
    assert manifest["steps"] == STEPS

    spec = spec_of(home, 1)
    ids = held_back(spec)
    model = home / "models/tiny"
    weights = FrozenWeights.open(model / "weights.lorad")
    config = DecoderConfig.from_json(weights.metadata["config"])
    engine = create_engine("torch_cpu", weights.matrices, EngineOptions(threads=1))
    tokenizer = ChatTokenizer.load(model)
    with Database.open_readonly(home / "lorad.db") as database:
        data = load_dataset(database, spec, tokenizer)
    published = fresh_adapter(config, spec)
    load_peft_folder(home / events[-1]["path"], published)
    answers = {label: tokenizer.answer_ids(label) for label in LABELS}
    rows = {i: data.train[i] for i in ids}
    again = evaluate(Decoder(config, weights, engine), published, rows, answers)
    assert mean_nll(again) == pytest.approx(losses[report["chosen_step"]], abs=1e-4)

    write_spec(home, 2, **{**SETTINGS, "validation_fraction": 0.0})
    path = home / "runs/2/spec.json"
    fitted = [i for i in spec.train_example_ids if i not in ids]
    path.write_text(json.dumps({**json.loads(path.read_text()), "train_example_ids": fitted}))
    without = run_to_the_end(home, 2, KEEP)
    assert step_numbers(without) == step_numbers(events)
    assert manifest_of(home, without[-1])["validation"] is None
    last = {n: home / f"runs/{n}/kept/step-{STEPS:08d}/adapter.safetensors" for n in (1, 2)}
    assert last[1].read_bytes() == last[2].read_bytes()


@pytest.mark.slow
def test_killed_and_resumed_it_chooses_the_same(home: Path) -> None:
    settings = {**SETTINGS, "checkpoint_every_steps": 5}
    for run_id in (1, 2):
        write_spec(home, run_id, **settings)
    straight = run_to_the_end(home, 1)
    began = at("kill", event="step", step=EVERY)  # before it is measured, and after a checkpoint
    assert Worker(home, 2, began).wait()[0] == -signal.SIGKILL
    assert Worker(home, 2, at("kill", event="step", step=9)).wait()[0] == -signal.SIGKILL
    code, _ = Worker(home, 2, at("terminate", event="step", step=11)).wait()
    assert code == 75
    checkpoint = load_newest_checkpoint(home / "runs/2/checkpoints", spec_of(home, 2))
    assert checkpoint is not None
    assert RunState.from_json(checkpoint.state).validation.best_step is not None
    assert checkpoint.best.keys() == checkpoint.adapter.keys()
    assert any(not np.array_equal(checkpoint.best[k], v) for k, v in checkpoint.adapter.items())
    last = run_to_the_end(home, 2)
    assert adapter_bytes(home, 1) == adapter_bytes(home, 2)
    found, expected = manifest_of(home, last[-1]), manifest_of(home, straight[-1])
    for name in ("validation", "metrics", "holdout_rows", "exact_resume"):
        assert found[name] == expected[name]
    assert found["exact_resume"] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "saved"),
    [
        ({"event": "step", "step": EVERY + 1}, EVERY + 1),  # a measurement lies behind it
        ({"event": "evaluating", "done": 12, "total": 12}, EVERY),  # amid that measurement
    ],
)
def test_one_held_back_that_is_deleted_is_forgotten(
    home: Path, event: dict[str, Any], saved: int
) -> None:
    """No score of it is left in any checkpoint."""
    write_spec(home, 1, **SETTINGS)
    gone = held_back(spec_of(home, 1))[0]
    kill = at("kill", event="checkpoint", step=saved)
    code, _ = Worker(home, 1, at("delete", gone, **event), kill).wait()
    assert code == -signal.SIGKILL
    states = [json.loads(p.read_text()) for p in home.glob("runs/1/checkpoints/*/state.json")]
    assert states
    for state in states:
        (measured,) = state["validation"]["measured"]
        assert len(measured["rows"]) == 11
        assert gone not in [row["example_id"] for row in measured["rows"]]
    manifest = manifest_of(home, run_to_the_end(home, 1)[-1])
    assert manifest["validation"]["examples"] == 11
    assert manifest["skipped_example_ids"] == [gone]
    assert manifest["exact_resume"] is True


def test_the_same_text_is_held_back_together(home: Path) -> None:
    write_spec(home, 1, **SETTINGS)
    spec = spec_of(home, 1)
    alone = held_back(spec)
    twin = next(i for i in spec.train_example_ids if i not in alone)
    with Database.open_readonly(home / "lorad.db") as database:
        text = load_dataset(database, spec, ChatTokenizer.load(home / "models/tiny"))
    assert len(set(text.same_input.values())) == 48
    send_again(home, alone[0], "Ring  ME")
    send_again(home, twin, "ring me")
    with Database.open_readonly(home / "lorad.db") as database:
        text = load_dataset(database, spec, ChatTokenizer.load(home / "models/tiny"))
    together = held_back(spec, text.same_input)
    assert (alone[0] in together) == (twin in together)
    assert text.same_input[max(alone[0], twin)] == min(alone[0], twin)


def test_patience_ends_the_training(home: Path) -> None:
    write_spec(home, 1, **{**SETTINGS, "steps": 60, "patience": 1, "learning_rate": 0.3})
    events = run_to_the_end(home, 1)
    manifest = manifest_of(home, events[-1])
    measured, chosen = manifest["validation"]["measured"], manifest["validation"]["chosen_step"]
    assert manifest["steps"] == measured[-1]["step"] == chosen + EVERY < 60


def test_an_earlier_lorads_checkpoint_is_of_the_same_run(home: Path) -> None:
    write_spec(home, 1, checkpoint_every_steps=4)
    assert Worker(home, 1, at("kill", event="step", step=6)).wait()[0] == -signal.SIGKILL
    spec = spec_of(home, 1)
    (newest,) = home.glob("runs/1/checkpoints/step-00000004")
    shutil.copytree(newest, home / "kept")
    identity = json.loads((newest / "manifest.json").read_text())["identity"]
    assert "validation_fraction" not in identity["training"]
    state = json.loads((newest / "state.json").read_text())
    del state["validation"]
    assert RunState.from_json(state).validation.ids == ()
    assert load_newest_checkpoint(home / "runs/1/checkpoints", spec) is not None
