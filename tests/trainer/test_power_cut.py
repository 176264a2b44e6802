"""A power cut at any operation leaves the newest acknowledged checkpoint."""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import trainer.durable
from tests.trainer.disk_recorder import recorded
from tests.trainer.lossy_disk import Record, Tree, put, tree
from tests.trainer.test_checkpoint import SPEC, checkpoint
from trainer.checkpoint import finish_replacing, load_newest_checkpoint
from trainer.checkpointing import Checkpointing
from trainer.halving import halved_intervals

INTERVALS = halved_intervals(SPEC.training, 0)

CHECKPOINTS = "runs/1/checkpoints"


class LossError(AssertionError):
    """A disk on which something that was acknowledged isn't there."""


def distinct(record: Record, guesses: int, below: str) -> Iterable[tuple[int, Tree]]:
    """The different disks that a power cut may leave, each with where it came."""
    chance = random.Random(7)
    seen: set[tuple[int, str]] = set()
    for end in range(len(record.operations) + 1):
        said = len(record.marks(end))
        for disk in record.disks(end, chance, guesses):
            disk = {path: data for path, data in disk.items() if path.startswith(below)}
            digest = hashlib.sha256(repr(sorted(disk.items())).encode()).hexdigest()
            if (said, digest) not in seen:
                seen.add((said, digest))
                yield end, disk


def check_checkpoints(record: Record, folder: Path, guesses: int = 3) -> int:
    """Load from every disk; marks are the names of checkpoints. Returns how many disks it were."""
    marks = record.marks(len(record.operations))
    disks = 0
    for end, disk in distinct(record, guesses, "runs"):
        disks += 1
        put(disk, folder)
        found = load_newest_checkpoint(folder / CHECKPOINTS, SPEC)
        finish_replacing(folder / CHECKPOINTS)
        again = load_newest_checkpoint(folder / CHECKPOINTS, SPEC)
        shutil.rmtree(folder)
        said = [mark for mark in record.marks(end) if mark.startswith("step")]
        if found is None:
            if said:
                raise LossError(f"cut at {end}: none is left, {said[-1]} was acknowledged")
            continue
        name = found.state["name"]
        if name not in marks or (said and marks.index(name) < marks.index(said[-1])):
            raise LossError(f"cut at {end}: {name} is left, {said[-1:]} was acknowledged")
        assert again is not None
        assert again.state["name"] == name
        expected = checkpoint(found.step)
        assert np.array_equal(found.adapter["lora"], expected.adapter["lora"])
        assert np.array_equal(found.optimizer["exp_avg/lora"], expected.optimizer["exp_avg/lora"])
    return disks


def save_some(home: Path, record: Record) -> None:
    """Three checkpoints, one that replaces them, another one, and one that is there already."""
    saving = Checkpointing(home, home / CHECKPOINTS, SPEC, INTERVALS)
    for name, step, replacing in (
        ("step 10", 10, False),
        ("step 20", 20, False),
        ("step 30", 30, False),
        ("step 30 again", 30, True),
        ("step 40", 40, False),
        ("step 50 in place of all", 50, True),
    ):
        saving.save(replace(checkpoint(step), state={"name": name}), replacing=replacing)
        record.mark(name)


def test_the_record_knows_all_that_happened(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "before").write_text("it was there")
    with recorded(home) as record:
        save_some(home, record)
        with (home / "log").open("a") as file:
            file.write("one")
            file.write("two")
        shutil.copytree(home / "runs", home / "copy", copy_function=shutil.copy)
        shutil.move(home / "before", home / "after")
    real = tree(home)
    believed = record.whole()
    assert real.keys() == believed.keys()
    # shutil.copy lets the kernel copy, which nothing stands in for: the comparison notices it.
    different = {path for path in real if real[path] != believed[path]}
    assert different == {path for path in real if path.startswith("copy/") and real[path]}


def test_a_way_of_writing_that_is_not_recorded_is_noticed(tmp_path: Path) -> None:
    with recorded(tmp_path) as record:
        subprocess.run(["touch", str(tmp_path / "quiet")], check=True)
    assert tree(tmp_path) != record.whole()


def test_every_disk_has_the_newest_acknowledged_checkpoint(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with recorded(home) as record:
        save_some(home, record)
    assert tree(home) == record.whole()
    assert check_checkpoints(record, tmp_path / "cut", guesses=10) > 300


def without_fsync_of(matches: Callable[[Path], bool]) -> Callable[[Path], None]:
    real = trainer.durable.sync

    def forgetful(path: Path) -> None:
        if not matches(path):
            real(path)

    return forgetful


@pytest.mark.parametrize(
    ("forgotten", "matches"),
    [
        ("adapter", lambda path: path.name == "adapter.safetensors"),
        ("optimizer", lambda path: path.name == "optimizer.safetensors"),
        ("state", lambda path: path.name == "state.json"),
        ("manifest", lambda path: path.name == "manifest.json"),
        ("names in the checkpoint", lambda path: path.name.startswith(".tmp-")),
        ("the checkpoint's name", lambda path: path.name == "checkpoints"),
        ("the name of the folder of checkpoints", lambda path: path.name == "1"),
        ("the name of the run's folder", lambda path: path.name == "runs"),
        ("the name of the folder of runs", lambda path: path.name == "home"),
    ],
)
def test_the_shim_bites(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forgotten: str,
    matches: Callable[[Path], bool],
) -> None:
    """Each fsync is needed: without it some disk has lost a checkpoint."""
    monkeypatch.setattr(trainer.durable, "sync", without_fsync_of(matches))
    home = tmp_path / "home"
    home.mkdir()
    with recorded(home) as record:
        save_some(home, record)
    with pytest.raises(LossError):
        check_checkpoints(record, tmp_path / "cut")


def test_the_earlier_must_not_go_before_the_later_is_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    saving = Checkpointing(home, home / CHECKPOINTS, SPEC, INTERVALS)
    saving.save(replace(checkpoint(10), state={"name": "step 10"}), replacing=False)
    monkeypatch.setattr(trainer.durable, "sync", without_fsync_of(lambda path: True))
    with recorded(home) as record:
        record.mark("step 10")
        saving.save(replace(checkpoint(20), state={"name": "step 20"}), replacing=True)
    with pytest.raises(LossError, match=r"none is left|step 10"):
        check_checkpoints(record, tmp_path / "cut")


def test_what_a_killed_process_left_unsynced_is_made_sure_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the rename and the fsync of the folder, it goes on from that checkpoint."""
    home = tmp_path / "home"
    home.mkdir()
    newest = replace(checkpoint(10), state={"name": "step 10"})

    real = trainer.durable.sync

    def killed(path: Path) -> None:
        if path.name == "checkpoints" and list(path.glob("step-*")):
            raise KeyboardInterrupt
        real(path)

    with recorded(home) as record:
        with monkeypatch.context() as patched:
            patched.setattr(trainer.durable, "sync", killed)
            first = Checkpointing(home, home / CHECKPOINTS, SPEC, INTERVALS)
            with pytest.raises(KeyboardInterrupt):
                first.save(newest, replacing=False)
        assert load_newest_checkpoint(home / CHECKPOINTS, SPEC) is not None
        second = Checkpointing(home, home / CHECKPOINTS, SPEC, INTERVALS)
        second.save(newest, replacing=False)
        record.mark("step 10")
    check_checkpoints(record, tmp_path / "cut")
