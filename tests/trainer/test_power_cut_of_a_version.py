"""Wherever the power is cut, a version and a spec are whole or absent, and stay; so at an error."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import trainer.durable
from npu.engine_guard import EngineGuard
from service.durable import write_durably
from tests.trainer.disk_recorder import recorded
from tests.trainer.lossy_disk import Record, put, tree
from tests.trainer.test_checkpoint import SPEC, checkpoint
from tests.trainer.test_power_cut import CHECKPOINTS, LossError, distinct, without_fsync_of
from trainer.checkpoint import load_newest_checkpoint
from trainer.checkpointing import Checkpointing
from trainer.durable import file_sha256
from trainer.halving import halved_intervals
from trainer.lora import LoraAdapter
from trainer.models.tiny import write_tiny_model
from trainer.pace import Pace
from trainer.predict.inbox import Inbox
from trainer.publishing import publish_version
from trainer.run import Run

INTERVALS = halved_intervals(SPEC.training, 0)

VERSION = "adapters/1/versions/run-00000001"


@functools.cache
def adapter() -> LoraAdapter:
    with tempfile.TemporaryDirectory() as folder:
        config = write_tiny_model(Path(folder), layers=1)
    made = LoraAdapter(config, rank=2, alpha=4.0, targets=["q_proj"])
    made.lora_B(0, "q_proj").fill_(0.5)
    return made


def publish(home: Path) -> None:
    manifest = {"run_id": 1, "base_model": "tiny", "base_hash": "sha256:0"}
    publish_version(home, Path(VERSION), adapter(), manifest)


def check_versions(record: Record, folder: Path) -> int:
    """The version is there, whole, once that was said; before it may also be absent."""
    disks = 0
    for end, disk in distinct(record, 3, "adapters"):
        disks += 1
        put(disk, folder)
        there = (folder / VERSION).exists()
        try:
            if not there and any(mark == "version" for mark in record.marks(end)):
                raise LossError(f"cut at {end}: the version is gone")
            if there:
                manifest = json.loads((folder / VERSION / "version.json").read_bytes())
                for name, digest in manifest["files"].items():
                    if file_sha256(folder / VERSION / name) != digest:
                        raise LossError(f"cut at {end}: {name} is damaged")
        except (OSError, ValueError) as error:
            raise LossError(f"cut at {end}: the version is there and not whole") from error
        finally:
            shutil.rmtree(folder)
    return disks


def test_a_version_is_whole_or_absent_and_stays(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    adapter()
    with recorded(home) as record:
        publish(home)
        record.mark("version")
    assert tree(home) == record.whole()
    assert check_versions(record, tmp_path / "cut") > 20


@pytest.mark.parametrize(
    "forgotten",
    [
        "version.json",
        "adapter_model.safetensors",
        "adapter.gguf",
        ".tmp-run",
        "versions",
        "1",
        "adapters",
        "home",
    ],
)
def test_the_shim_bites_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    forgetful = without_fsync_of(
        lambda path: path.name == forgotten or path.name.startswith(f"{forgotten}-0")
    )
    monkeypatch.setattr(trainer.durable, "sync", forgetful)
    home = tmp_path / "home"
    home.mkdir()
    with recorded(home) as record:
        publish(home)
        record.mark("version")
    with pytest.raises(LossError):
        check_versions(record, tmp_path / "cut")


class Nobody:
    """Asks nothing of a run."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.questions = Inbox()

    def reason_to_stop(self) -> str | None:
        return None

    def examples_changed(self) -> bool:
        return False


def test_a_version_that_a_killed_process_left_unsynced_is_made_sure_before_it_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    adapter()
    real = trainer.durable.sync

    def killed(path: Path) -> None:
        if path.name == "versions" and list(path.glob("run-*")):
            raise KeyboardInterrupt
        real(path)

    with recorded(home) as record:
        with monkeypatch.context() as patched:
            patched.setattr(trainer.durable, "sync", killed)
            with pytest.raises(KeyboardInterrupt):
                publish(home)
        assert (home / VERSION).exists()
        guard = EngineGuard(home / "engine", SPEC.run_id)
        Run(SPEC, home, lambda event, fields: record.mark(event), Nobody(), guard).execute()
    assert record.marks(len(record.operations)) == ["version"]
    check_versions(record, tmp_path / "cut")


def check_spec(record: Record, allowed: Mapping[str, bytes]) -> None:
    """The spec is one of those written, and the last whose writing returned, or a later one."""
    order = list(allowed)
    for end, disk in distinct(record, 5, ""):
        said = [mark for mark in record.marks(end) if mark in allowed]
        found = disk.get("runs/1/spec.json")
        if found is None:
            if said:
                raise LossError(f"cut at {end}: the spec is gone")
            continue
        names = [name for name in order if allowed[name] == found]
        if not names or (said and order.index(names[0]) < order.index(said[-1])):
            raise LossError(f"cut at {end}: the spec is damaged or an old one")


@pytest.mark.parametrize("forgotten", [None, "file", "folder"])
def test_a_spec_is_whole_or_absent_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str | None
) -> None:
    """As the daemon writes it; and without one of its two fsyncs it isn't."""
    (tmp_path / "runs/1").mkdir(parents=True)
    path = tmp_path / "runs/1/spec.json"
    written = {f"spec {n}": json.dumps({"n": n, "ids": list(range(3000))}).encode() for n in (1, 2)}
    with recorded(tmp_path) as record:
        real = os.fsync

        def forgetful(descriptor: int) -> None:
            is_folder = Path(f"/proc/self/fd/{descriptor}").resolve().is_dir()
            if forgotten != ("folder" if is_folder else "file"):
                real(descriptor)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", forgetful)
            for name, data in written.items():
                write_durably(path, data)
                record.mark(name)
    assert tree(tmp_path) == record.whole()
    if forgotten is None:
        check_spec(record, written)
    else:
        with pytest.raises(LossError):
            check_spec(record, written)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_at_any_operation_leaves_the_earlier_and_no_rubbish(
    tmp_path: Path, number: int
) -> None:
    """Every write, fsync, creation and rename of a checkpoint and of a version fails once."""
    count = attempt(tmp_path / "all", None, number)
    assert count > 40
    for place in range(count):
        home = tmp_path / f"home-{place}"
        with pytest.raises(OSError, match=os.strerror(number)):
            attempt(home, place, number)
        found = load_newest_checkpoint(home / CHECKPOINTS, SPEC)
        assert found is not None
        assert found.step in (10, 20)
        assert not list(home.rglob(".tmp-*"))
        version = home / VERSION
        assert not version.exists() or json.loads((version / "version.json").read_text())
        attempt(home, None, number)
        assert load_newest_checkpoint(home / CHECKPOINTS, SPEC).step == 20  # type: ignore[union-attr]
        assert (home / VERSION / "version.json").exists()
        shutil.rmtree(home)


def attempt(home: Path, place: int | None, number: int) -> int:
    """Save and publish; operation `place` after the first checkpoint fails. How many there were."""
    home.mkdir(exist_ok=True)
    saving = Checkpointing(home, home / CHECKPOINTS, SPEC, INTERVALS)
    saving.save(replace(checkpoint(10), state={"name": "step 10"}), replacing=False)
    kinds: list[str] = []

    def before(kind: str) -> None:
        kinds.append(kind)
        if len(kinds) - 1 == place:
            raise OSError(number, os.strerror(number))

    with recorded(home, before):
        saving.save(replace(checkpoint(20), state={"name": "step 20"}), replacing=False)
        if not (home / VERSION).exists():
            publish(home)
    assert {"create", "write", "fsync", "mkdir", "rename"} >= set(kinds)
    return len(kinds)
