"""Checkpoints: whole or invisible, the right one or refused."""

import json
import random
import re
import shutil
from dataclasses import fields, replace
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
    newest_step,
    run_identity,
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


FILES = ["adapter.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]


def lengths(size: int) -> list[int]:
    """Every way in which a file's length can be wrong that a reader may treat in its own way."""
    return sorted({0, 1, 4, 7, 8, 9, 64, size // 2, size - 3, size - 1, size + 1, size + 4096})


@pytest.mark.parametrize("name", FILES)
def test_a_newest_with_a_file_of_another_length_is_passed_over(tmp_path: Path, name: str) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    save_checkpoint(tmp_path, SPEC, checkpoint(20))
    victim = tmp_path / "step-00000020" / name
    content = victim.read_bytes()
    for length in lengths(len(content)):
        victim.write_bytes((content + bytes(4096))[:length])
        assert load_newest_checkpoint(tmp_path, SPEC).step == 10, length  # type: ignore[union-attr]
    victim.write_bytes(bytes(len(content)))
    assert load_newest_checkpoint(tmp_path, SPEC).step == 10  # type: ignore[union-attr]
    victim.write_bytes(content)
    assert load_newest_checkpoint(tmp_path, SPEC).step == 20  # type: ignore[union-attr]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_never_trained_on_and_never_refused(tmp_path: Path, name: str) -> None:
    """The earlier one is taken, or, where the bit means nothing, the newest as it was."""
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    save_checkpoint(tmp_path, SPEC, checkpoint(20))
    victim = tmp_path / "step-00000020" / name
    content = victim.read_bytes()
    chance = random.Random(11)
    bits = range(8 * len(content)) if name == "manifest.json" else range(0, 8 * len(content), 61)
    for bit in chance.sample(bits, min(len(bits), 400)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        victim.write_bytes(flipped)
        found = load_newest_checkpoint(tmp_path, SPEC)
        assert found is not None
        if name != "manifest.json":
            assert found.step == 10, bit
        expected = checkpoint(found.step)
        assert found.state == expected.state
        assert (found.adapter["lora"] == expected.adapter["lora"]).all()


@pytest.mark.parametrize("name", [*FILES, None])
def test_a_newest_with_a_missing_file_is_passed_over_and_written_again(
    tmp_path: Path, name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    save_checkpoint(tmp_path, SPEC, checkpoint(20))
    for path in (tmp_path / "step-00000020").iterdir():
        if name in (None, path.name):
            path.unlink()
    assert load_newest_checkpoint(tmp_path, SPEC).step == 10  # type: ignore[union-attr]
    assert "step-00000020 is damaged and passed over" in caplog.text
    save_checkpoint(tmp_path, SPEC, checkpoint(20))
    assert load_newest_checkpoint(tmp_path, SPEC).step == 20  # type: ignore[union-attr]


def test_a_damaged_later_one_takes_no_place_and_no_good_one_with_it(tmp_path: Path) -> None:
    """A run that goes on from before it may save at other steps, and replace what was earlier."""
    for replacing in (False, True):
        for step in (10, 20):
            save_checkpoint(tmp_path, SPEC, checkpoint(step))
        (tmp_path / "step-00000020" / "state.json").write_text("{}")
        save_checkpoint(tmp_path, SPEC, checkpoint(15), replacing=replacing)
        names = sorted(path.name for path in tmp_path.iterdir())
        last = "step-00000015.0001" if replacing else "step-00000015"
        assert names == ([last] if replacing else ["step-00000010", last])
        assert load_newest_checkpoint(tmp_path, SPEC).step == 15  # type: ignore[union-attr]
        shutil.rmtree(tmp_path / last)


def test_what_has_another_name_is_no_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    (tmp_path / "step-latest.old").mkdir()
    (tmp_path / "step-00000099").write_text("a file, no folder")
    assert load_newest_checkpoint(tmp_path, SPEC).step == 10  # type: ignore[union-attr]
    assert newest_step(tmp_path) == 10


def test_a_checkpoint_of_an_earlier_lorad_has_no_hash_of_its_manifest(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    path = tmp_path / "step-00000010" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    path.write_text(json.dumps(manifest))
    assert load_newest_checkpoint(tmp_path, SPEC).step == 10  # type: ignore[union-attr]


def test_none_without_any(tmp_path: Path) -> None:
    assert load_newest_checkpoint(tmp_path / "nothing", SPEC) is None
    save_checkpoint(tmp_path, SPEC, checkpoint(5))
    (tmp_path / "step-00000005" / "manifest.json").write_text("[")
    assert load_newest_checkpoint(tmp_path, SPEC) is None


@pytest.mark.parametrize(
    ("field", "other", "named"),
    [
        ("base_hash", "sha256:bb", "base_hash 'sha256:bb', found 'sha256:aa'"),
        ("method", "another", "method 'another', found 'first_order'"),
        ("rank", 3, "rank 3, found 2"),
        ("alpha", 8.0, "alpha 8.0, found 4.0"),
        ("targets", ("q_proj",), "targets ['q_proj'], found ['q_proj', 'down_proj']"),
        ("use_rslora", True, "use_rslora True, found False"),
        ("top_layers", 1, "top_layers 1, found None"),
        ("max_tokens", 128, "max_tokens 128, found 64"),
        ("train_example_ids", (1, 2), "example_ids_sha256 '"),
        ("train_example_ids", (2, 1, 3), "example_ids_sha256 '"),
        ("holdout_example_ids", (3,), "example_ids_sha256 '"),
    ],
)
def test_another_computation_is_refused_naming_both(
    tmp_path: Path, field: str, other: object, named: str
) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    with pytest.raises(CheckpointMismatchError) as caught:
        load_newest_checkpoint(tmp_path, replace(SPEC, **{field: other}))  # type: ignore[arg-type]
    assert named in str(caught.value)
    assert "expected step-00000010 of a run with" in str(caught.value)
    if "sha256 '" in named:
        hashes = re.findall(r"'[0-9a-f]{64}'", str(caught.value))
        assert len(set(hashes)) == 2


def test_without_top_layers_a_run_is_what_it_was_before_there_were_any() -> None:
    """Else the checkpoints of runs that are under way would be refused after an update."""
    assert "top_layers" not in run_identity(SPEC)
    assert not {"validation_fraction", "patience"} & run_identity(SPEC)["training"].keys()
    idle = replace(SPEC, training=replace(SPEC.training, patience=3))
    assert run_identity(idle) == run_identity(SPEC)


@pytest.mark.parametrize("field", ["validation_fraction", "patience"])
def test_another_early_stopping_is_refused_naming_both(tmp_path: Path, field: str) -> None:
    stopping = replace(SPEC, training=replace(SPEC.training, validation_fraction=0.1, patience=2))
    save_checkpoint(tmp_path, stopping, checkpoint(10))
    other = replace(stopping.training, **{field: 0.2 if field == "validation_fraction" else 3})
    with pytest.raises(CheckpointMismatchError, match=rf"training\.{field} .*, found (0\.1|2);"):
        load_newest_checkpoint(tmp_path, replace(stopping, training=other))
    with pytest.raises(CheckpointMismatchError, match=r"training\.patience None, found 2;"):
        load_newest_checkpoint(tmp_path, SPEC)


@pytest.mark.parametrize("harm", ["cut", "missing"])
def test_a_best_adapter_is_part_of_what_must_be_whole(tmp_path: Path, harm: str) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    best = {"w": np.arange(6, dtype=np.float32)}
    save_checkpoint(tmp_path, SPEC, replace(checkpoint(20), best=best))
    found = load_newest_checkpoint(tmp_path, SPEC)
    assert found is not None
    assert np.array_equal(found.best["w"], best["w"])
    file = tmp_path / "step-00000020/best.safetensors"
    file.write_bytes(file.read_bytes()[:-1]) if harm == "cut" else file.unlink()
    found = load_newest_checkpoint(tmp_path, SPEC)
    assert found is not None
    assert (found.step, found.best) == (10, {})


OTHERS = {"seed": 1, "batch_size": 4, "epochs": 3.0, "steps": 9, "learning_rate": 0.5}
OTHERS |= {"schedule": "cosine", "warmup_fraction": 0.2, "max_grad_norm": 2.0}
OTHERS |= {"weight_decay": 0.1, "checkpoint_every_steps": 5, "checkpoint_every_seconds": 9.0}
OTHERS |= {"micro_batch_tokens": 256, "recompute": False}


@pytest.mark.parametrize(
    "field",
    sorted({one.name for one in fields(TrainingSettings)} - {"validation_fraction", "patience"}),
)
def test_every_other_training_setting_is_refused_naming_both(tmp_path: Path, field: str) -> None:
    save_checkpoint(tmp_path, SPEC, checkpoint(10))
    other = replace(SPEC.training, **{field: OTHERS[field]})  # type: ignore[arg-type]
    with pytest.raises(CheckpointMismatchError) as caught:
        load_newest_checkpoint(tmp_path, replace(SPEC, training=other))
    now = getattr(SPEC.training, field)
    assert f"training.{field} {OTHERS[field]!r}, found {now!r}; start" in str(caught.value)


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
