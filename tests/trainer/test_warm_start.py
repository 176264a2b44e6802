"""A run that begins with a version: its numbers go on, and the optimizer begins anew."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from npu.engine_options import EngineOptions
from npu.opening import open_engine
from npu.weights import FrozenWeights
from storage.database import Database
from tests.trainer.workers import (
    Worker,
    adapter_bytes,
    at,
    fill,
    manifest_of,
    run_to_the_end,
    step_numbers,
    write_spec,
)
from trainer.dataset import batch_ids, load_dataset
from trainer.evaluate import evaluate
from trainer.export.peft import load_peft_folder
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.run_adapter import fresh_adapter
from trainer.spec import RunSpec
from trainer.tokens import ChatTokenizer

VERSION = Path("adapters/1/versions/run-00000001")


@pytest.fixture(scope="module")
def first_version(tmp_path_factory: pytest.TempPathFactory, tiny_home: Path) -> Path:
    """A home with a first version; treat it as read-only."""
    home = tmp_path_factory.mktemp("first-version")
    shutil.copytree(tiny_home / "models", home / "models")
    fill(home)
    write_spec(home, 1)
    run_to_the_end(home, 1)
    return home


@pytest.fixture
def begun(tmp_path: Path, first_version: Path) -> Path:
    """A copy of it."""
    shutil.copytree(first_version, tmp_path / "home")
    return tmp_path / "home"


def loss_of_the_first_batch(home: Path, version: Path | None) -> float:
    """Of run 2, by the scorer of the holdout."""
    spec = RunSpec.load(home / "runs/2/spec.json")
    weights = FrozenWeights.open(home / "models/tiny/weights.lorad")
    config = DecoderConfig.from_json(weights.metadata["config"])
    decoder = Decoder(config, weights, open_engine(weights, "torch_cpu", EngineOptions(threads=1)))
    adapter = fresh_adapter(config, spec)
    if version is not None:
        load_peft_folder(home / version, adapter)
    with Database.open_readonly(home / "lorad.db") as database:
        train = load_dataset(database, spec, ChatTokenizer.load(home / "models/tiny")).train
    ids = batch_ids(spec.train_example_ids, spec.training.seed, spec.training.batch_size, 0)
    rows = evaluate(decoder, adapter, {one: train[one] for one in ids}, {}).rows
    return sum(row.answer_nll for row in rows) / sum(row.answer_tokens for row in rows)


def failure(home: Path, run_id: int) -> str:
    code, events = Worker(home, run_id).wait()
    assert code == 1
    error: str = events[-1]["error"]
    return error


def test_its_first_loss_is_that_of_the_version(begun: Path) -> None:
    write_spec(begun, 2, begin_with=1, seed=5)
    manifest = manifest_of(begun, (events := run_to_the_end(begun, 2))[-1])
    first = step_numbers(events)[1][0]
    assert first == pytest.approx(loss_of_the_first_batch(begun, VERSION), rel=1e-5)
    assert first < 0.9 * loss_of_the_first_batch(begun, None), "the base's would be told apart"
    assert manifest["warm_start"] == {"version": 1, "path": VERSION.as_posix()}
    before = json.loads((begun / VERSION / "version.json").read_text())
    assert before["warm_start"] is None
    measured = manifest["metrics"]
    assert measured["before"] == before["metrics"]["before"], "the base is measured as it is"
    assert measured["after"]["label_nll"] < before["metrics"]["after"]["label_nll"]


def test_killed_and_resumed_it_is_the_same_run_even_if_the_version_is_gone(begun: Path) -> None:
    for run_id in (2, 3):
        write_spec(begun, run_id, begin_with=1)
    expected = step_numbers(run_to_the_end(begun, 2))
    code, first = Worker(begun, 3, at("kill", event="step", step=6)).wait()
    assert code == -signal.SIGKILL
    shutil.rmtree(begun / VERSION)
    rest = run_to_the_end(begun, 3)
    [started] = [event for event in rest if event["event"] == "started"]
    assert (started["resumed_from"], started["exact_resume"]) == (4, True)
    assert step_numbers(first) | step_numbers(rest) == expected
    assert adapter_bytes(begun, 3) == adapter_bytes(begun, 2)


def test_a_checkpoint_of_another_beginning_is_refused(begun: Path) -> None:
    write_spec(begun, 2, begin_with=1)
    Worker(begun, 2, at("kill", event="step", step=6)).wait()
    write_spec(begun, 2)
    assert "warm_start" in failure(begun, 2)


@pytest.mark.parametrize("damage", ["gone", "base", "tensors", "rank"])
def test_a_version_that_it_cannot_begin_with(begun: Path, damage: str) -> None:
    write_spec(begun, 2, begin_with=1)
    path = begun / VERSION / "version.json"
    manifest: dict[str, Any] = json.loads(path.read_text())
    if damage == "gone":
        shutil.rmtree(begun / VERSION)
        words = ["version 1", "version.json"]
    elif damage == "base":
        path.write_text(json.dumps(manifest | {"base_hash": "sha256:another"}))
        words = [manifest["base_hash"], "sha256:another"]
    elif damage == "tensors":
        tensors = begun / VERSION / "adapter_model.safetensors"
        data = bytearray(tensors.read_bytes())
        data[-1] ^= 1
        tensors.write_bytes(data)
        words = ["adapter_model.safetensors", "damaged"]
    else:
        spec = json.loads((begun / "runs/2/spec.json").read_text())
        (begun / "runs/2/spec.json").write_text(json.dumps(spec | {"rank": 2}))
        words = ["lora_A", "(2, "]
    error = failure(begun, 2)
    for word in words:
        assert word in error
