"""Checkpoints: whole or invisible, the right one or refused."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import trainer.checkpoint
from trainer.checkpoint import (
    Checkpoint,
    CheckpointMismatchError,
    finish_replacing,
    load_newest_checkpoint,
    save_checkpoint,
)
from trainer.durable import published
from trainer.spec import RunSpec, TrainingSettings

SPEC = RunSpec(
    run_id=1,
    adapter_id=1,
    method="first_order",
    model_name="tiny",
    base_hash="sha256:aa",
    rank=2,
    alpha=4.0,
    targets=("q_proj", "down_proj"),
    use_rslora=False,
    labels=("x", "y"),
    max_tokens=64,
    train_example_ids=(1, 2, 3),
    holdout_example_ids=(4,),
    active_version=None,
    training=TrainingSettings(),
    engine="torch_cpu",
    threads=1,
)


def checkpoint(step: int) -> Checkpoint:
    values = np.arange(12, dtype=np.float32).reshape(3, 4) + step
    return Checkpoint(step, {"lora": values}, {"exp_avg/lora": -values}, {"loss": step / 7})


def test_round_trip_keeps_two(tmp_path: Path) -> None:
    for step in (0, 10, 20):
        save_checkpoint(tmp_path, SPEC, checkpoint(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-00000020"]
    found = load_newest_checkpoint(tmp_path, SPEC)
    assert found is not None
    assert found.step == 20
    assert found.state == {"loss": 20 / 7}
    assert (found.adapter["lora"] == checkpoint(20).adapter["lora"]).all()
    assert (found.optimizer["exp_avg/lora"] == checkpoint(20).optimizer["exp_avg/lora"]).all()


@pytest.mark.parametrize("name", ["adapter.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_newest_is_passed_over(tmp_path: Path, name: str, damage: str) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    save_checkpoint(tmp_path, SPEC, checkpoint(20))
    victim = tmp_path / "step-00000020" / name
    content = victim.read_bytes()
    if damage == "truncate":
        victim.write_bytes(content[:-3])
    elif damage == "flip":
        victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        victim.unlink()
    found = load_newest_checkpoint(tmp_path, SPEC)
    assert found is not None
    assert found.step == 10
    save_checkpoint(tmp_path, SPEC, checkpoint(20))
    assert load_newest_checkpoint(tmp_path, SPEC).step == 20  # type: ignore[union-attr]


def test_none_without_any(tmp_path: Path) -> None:
    assert load_newest_checkpoint(tmp_path / "nothing", SPEC) is None
    save_checkpoint(tmp_path, SPEC, checkpoint(5))
    (tmp_path / "step-00000005" / "manifest.json").write_text("[")
    assert load_newest_checkpoint(tmp_path, SPEC) is None


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"base_hash": "sha256:bb"}, ["sha256:bb", "sha256:aa"]),
        ({"rank": 3}, ["rank 3", "found 2"]),
        ({"targets": ("q_proj",)}, ["targets", "down_proj"]),
        ({"train_example_ids": (1, 2)}, ["example_ids"]),
        ({"training": TrainingSettings(seed=1)}, ["training"]),
    ],
)
def test_another_computation_is_refused_naming_both(
    tmp_path: Path, other: dict[str, object], names: list[str]
) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    with pytest.raises(CheckpointMismatchError) as caught:
        load_newest_checkpoint(tmp_path, replace(SPEC, **other))  # type: ignore[arg-type]
    for name in names:
        assert name in str(caught.value)


def test_a_replacing_checkpoint_is_the_only_one_left(tmp_path: Path) -> None:
    for step in (10, 20):
        save_checkpoint(tmp_path, SPEC, checkpoint(step))
    for attempt in range(1, 12):
        replacing = replace(checkpoint(20), state={"attempt": attempt})
        save_checkpoint(tmp_path, SPEC, replacing, replacing=True)
        assert len(list(tmp_path.iterdir())) == 1
        found = load_newest_checkpoint(tmp_path, SPEC)
        assert found is not None
        assert (found.step, found.state) == (20, {"attempt": attempt})
    save_checkpoint(tmp_path, SPEC, checkpoint(20))  # as when it stops: there is a whole one
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000020.0011"]
    save_checkpoint(tmp_path, SPEC, checkpoint(30))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-00000020.0011", "step-00000030"]


@pytest.mark.parametrize("killed_in", ["_write", "_is_whole", "rmtree"])
def test_killed_while_replacing_there_is_always_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    save_checkpoint(tmp_path, SPEC, checkpoint(20))

    def die(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if killed_in == "rmtree":
            patched.setattr(trainer.checkpoint, "shutil", SimpleNamespace(rmtree=die))
        else:
            patched.setattr(trainer.checkpoint, killed_in, die)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(
                tmp_path, SPEC, replace(checkpoint(20), state={"new": 1}), replacing=True
            )
    found = load_newest_checkpoint(tmp_path, SPEC)
    assert found is not None
    assert found.step == 20
    assert found.state == ({"loss": 20 / 7} if killed_in == "_write" else {"new": 1})
    finish_replacing(tmp_path)
    assert len(list(tmp_path.iterdir())) == (2 if killed_in == "_write" else 1)
    assert load_newest_checkpoint(tmp_path, SPEC).state == found.state  # type: ignore[union-attr]
    save_checkpoint(tmp_path, SPEC, replace(checkpoint(20), state={"new": 2}), replacing=True)
    assert load_newest_checkpoint(tmp_path, SPEC).state == {"new": 2}  # type: ignore[union-attr]
    assert len(list(tmp_path.glob("step-*"))) == 1


def test_a_replacing_checkpoint_that_is_damaged_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(20))
    monkeypatch.setattr(trainer.checkpoint, "_is_whole", lambda path: False)
    with pytest.raises(OSError, match="check the disk"):
        save_checkpoint(tmp_path, SPEC, checkpoint(20), replacing=True)
    assert (tmp_path / "step-00000020" / "manifest.json").exists()


def test_an_unfinished_folder_is_invisible(tmp_path: Path) -> None:
    class BoomError(Exception):
        pass

    def fill() -> None:
        with published(tmp_path / "step-00000030") as folder:
            (folder / "state.json").write_text(json.dumps({}))
            assert load_newest_checkpoint(tmp_path, SPEC) is None
            raise BoomError

    with pytest.raises(BoomError):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_a_published_folder_is_never_replaced(tmp_path: Path) -> None:
    with published(tmp_path / "final") as folder:
        (folder / "one").write_text("1")

    def again() -> None:
        with published(tmp_path / "final") as folder:
            (folder / "two").write_text("2")

    with pytest.raises(FileExistsError, match="final"):
        again()
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    assert (tmp_path / "final" / "one").read_text() == "1"
