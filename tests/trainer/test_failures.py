"""A run that has failed says whether trying again can help; nothing that isn't a number is kept."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu.errors import NonFiniteInput, ProductError
from npu.weight_layout import WeightFileError
from tests.trainer.test_checkpoint import SPEC, checkpoint
from tests.trainer.workers import Worker, at, run_to_the_end, write_spec
from trainer.checkpoint import CheckpointMismatchError, load_newest_checkpoint
from trainer.checkpointing import Checkpointing
from trainer.dataset import DatasetError
from trainer.failures import full_disk, worth_another_try
from trainer.halving import halved_intervals
from trainer.publishing import UnchangedError
from trainer.run import RunError
from trainer.spec import SpecError

INTERVALS = halved_intervals(SPEC.training, 0)

SETTINGS = {"steps": 4, "batch_size": 4, "checkpoint_every_steps": 2}


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (RunError("x"), False),
        (SpecError("x"), False),
        (CheckpointMismatchError("x"), False),
        (DatasetError("x"), False),
        (FloatingPointError("x"), False),
        (NonFiniteInput("a", "forward"), False),
        (UnchangedError("x"), False),
        (WeightFileError("x"), False),
        (MemoryError(), True),
        (OSError(errno.EIO, "x"), True),
        (RuntimeError("x"), True),
        (ValueError("x"), True),
        (KeyError("x"), True),
        (ProductError("x"), True),
    ],
)
def test_trying_again_helps_against_what_nobody_expected(error: Exception, again: bool) -> None:
    assert worth_another_try(error) is again
    assert full_disk(error) is None


def test_no_room_is_told_from_other_errors_of_the_disk() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT):
        error = OSError(number, os.strerror(number))
        assert str(full_disk(error)).startswith("the disk is full: ")
        caused = ValueError("while cleaning up")
        caused.__cause__ = error
        assert full_disk(caused) == full_disk(error)
    assert full_disk(OSError(errno.EACCES, "x")) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["adapter", "optimizer"])
def test_what_is_no_number_never_becomes_the_newest_checkpoint(
    tmp_path: Path, value: float, where: str
) -> None:
    saving = Checkpointing(tmp_path, tmp_path / "checkpoints", SPEC, INTERVALS)
    saving.save(checkpoint(10), replacing=False)
    bad = checkpoint(20)
    arrays: dict[str, Any] = dict(getattr(bad, where))
    (name,) = arrays
    arrays[name][1, 2] = value
    for replacing in (False, True):
        with pytest.raises(FloatingPointError, match=f"after step 20, found others in {name}"):
            saving.save(replace(bad, **{where: arrays}), replacing=replacing)
        found = load_newest_checkpoint(tmp_path / "checkpoints", SPEC)
        assert found is not None
        assert found.step == 10
    assert saving.saves == 1


def failed(home: Path, *script: dict[str, Any]) -> dict[str, Any]:
    code, events = Worker(home, 1, *script).wait()
    assert code == 1
    assert events[-1]["event"] == "failed"
    assert not list(home.glob("adapters/*/versions/*"))
    return events[-1]


def test_a_run_that_changes_nothing_is_failed(home: Path) -> None:
    write_spec(home, 1, **SETTINGS, **{"learning_rate": 0.0})
    event = failed(home)
    assert event["error"] == "expected training to change the adapter, found every lora_B zero"
    assert event["again"] is False


@pytest.mark.parametrize("engine", ["torch_cpu", "onnx_cpu"])
def test_a_run_that_blows_up_is_failed_and_leaves_only_numbers(home: Path, engine: str) -> None:
    """What first isn't finite goes into a frozen product: it is named, and goes no further."""
    settings = SETTINGS | {"checkpoint_every_steps": 1, "engine": engine, "learning_rate": 1e25}
    write_spec(home, 1, **settings)
    event = failed(home)
    assert event["again"] is False
    assert event["error"] == (
        "matrix 'layers.0.self_attn.o_proj', forward: expected finite values, found NaN or "
        "infinity: the step diverged, lower the learning rate"
    )
    saved = list(home.glob("runs/1/checkpoints/step-*/adapter.safetensors"))
    assert saved
    for path in home.glob("runs/1/checkpoints/step-*/*.safetensors"):
        from trainer.safetensors_file import SafetensorsFile

        tensors = SafetensorsFile(path)
        assert all(np.isfinite(tensors.load(name)).all() for name in tensors.names())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"spec_version": 1, "run', "expected a whole spec.json"),
        (None, "expected a whole spec.json"),
        ('{"spec_version": 2}', "expected spec_version 1, found 2"),
    ],
)
def test_a_spec_that_cannot_be_followed_is_not_tried_again(
    home: Path, content: str | None, message: str
) -> None:
    write_spec(home, 1)
    path = home / "runs/1/spec.json"
    path.unlink() if content is None else path.write_text(content)
    event = failed(home)
    assert message in event["error"]
    assert event["again"] is False


def test_another_rank_than_the_checkpoint_has_is_refused_for_good(home: Path) -> None:
    write_spec(home, 1, **SETTINGS)
    assert Worker(home, 1, at("kill", event="step", step=3)).wait()[0] == -9
    path = home / "runs/1/spec.json"
    spec = path.read_text()
    path.write_text(json.dumps(json.loads(spec) | {"rank": 8}))
    event = failed(home)
    assert "rank 8, found 4" in event["error"]
    assert event["again"] is False
    path.write_text(spec)
    run_to_the_end(home, 1)


def test_an_error_that_nobody_expected_may_be_tried_again(home: Path) -> None:
    write_spec(home, 1, **SETTINGS)
    (home / "models/tiny/tokenizer.json").rename(home / "away")
    assert failed(home)["again"] is True
    (home / "away").rename(home / "models/tiny/tokenizer.json")
    run_to_the_end(home, 1)
