"""A real run whose power is cut at any operation: it goes on and gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.lossy_disk import Record, Tree, put, tree
from tests.trainer.workers import adapter_bytes, at, manifest_of, run_to_the_end, write_spec
from trainer.checkpoint import load_newest_checkpoint
from trainer.durable import file_sha256
from trainer.spec import RunSpec

pytestmark = pytest.mark.slow

CHECKPOINTS = "runs/1/checkpoints"
VERSION = "adapters/1/versions/run-00000001"
SETTINGS = {"steps": 5, "batch_size": 4, "checkpoint_every_steps": 2}


def record_of(home: Path, *script: dict[str, Any]) -> Record:
    """The record of a run from its beginning to its version, checked against the real home."""
    write_spec(home, 1, **SETTINGS)
    file = home.parent / f"{home.name}.record"
    command = [sys.executable, "-m", "tests.trainer.recording_worker", str(file)]
    arguments = [json.dumps(script), "--home", str(home), "--run", "1"]
    subprocess.run([*command, *arguments], check=True, timeout=180, stdout=subprocess.DEVNULL)
    record: Record = pickle.loads(file.read_bytes())
    for part in ("runs", "adapters"):
        believed = {path: data for path, data in record.whole().items() if path.startswith(part)}
        real = {f"{part}/{path}": data for path, data in tree(home / part).items()}
        assert believed == {part: None, **real}
    return record


def said(record: Record, end: int, event: str) -> list[dict[str, Any]]:
    events = [json.loads(mark) for mark in record.marks(end)]
    return [one for one in events if one["event"] == event]


def cuts(record: Record, guesses: int) -> list[tuple[int, Tree]]:
    """All different disks of the run's own files, each with where the power was cut."""
    chance = random.Random(3)
    seen: set[tuple[int, str]] = set()
    found = []
    for end in range(len(record.operations) + 1):
        acknowledged = len(record.marks(end))
        for disk in record.disks(end, chance, guesses):
            ours = {path: d for path, d in disk.items() if path.startswith(("runs", "adapters"))}
            digest = hashlib.sha256(repr(sorted(ours.items())).encode()).hexdigest()
            if (acknowledged, digest) not in seen:
                seen.add((acknowledged, digest))
                found.append((end, ours))
    return found


def version_is_whole(folder: Path) -> bool:
    manifest = json.loads((folder / "version.json").read_bytes())
    return all(file_sha256(folder / name) == hash for name, hash in manifest["files"].items())


@pytest.mark.parametrize("deletes", [False, True])
def test_nothing_acknowledged_is_lost_wherever_the_power_is_cut(
    home: Path, tmp_path_factory: pytest.TempPathFactory, deletes: bool
) -> None:
    """With a deletion on the way there are checkpoints that take the place of earlier ones."""
    script = [at("delete", 7, 60, event="step", step=3)] if deletes else []
    record = record_of(home, *script)
    spec = RunSpec.load(home / "runs/1/spec.json")
    place = tmp_path_factory.mktemp("cut") / "home"
    disks = cuts(record, guesses=3)
    assert len(disks) > 200
    for end, disk in disks:
        put(disk, place)
        found = load_newest_checkpoint(place / CHECKPOINTS, spec)
        if (place / VERSION).exists():
            assert version_is_whole(place / VERSION), f"cut at {end}"
        elif saved := said(record, end, "checkpoint"):
            assert not said(record, end, "version"), f"the version is gone, cut at {end}"
            assert found is not None, f"no checkpoint is left, cut at {end}"
            assert found.step >= saved[-1]["step"], f"cut at {end}"
            forgotten = said(record, end, "forgot")
            if forgotten and saved[-1]["step"] >= 3:
                assert found.state["forgotten"] == {"7": 3, "60": 3}, f"cut at {end}"
        shutil.rmtree(place)


def test_from_wherever_the_power_was_cut_the_run_ends_with_the_same_bytes(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kept = tmp_path_factory.mktemp("kept")
    for name in ("models", "lorad.db"):
        real = home / name
        shutil.copytree(real, kept / name) if real.is_dir() else shutil.copy(real, kept / name)
    record = record_of(home)
    expected, metrics = adapter_bytes(home, 1), version_of(home)["metrics"]
    spec = (home / "runs/1/spec.json").read_bytes()
    begun = [cut for cut in cuts(record, guesses=2) if said(record, cut[0], "checkpoint")]
    for end, disk in random.Random(5).sample(begun, 3):
        again = tmp_path_factory.mktemp("again") / "home"
        put(disk, again)
        shutil.copytree(kept / "models", again / "models")
        shutil.copy(kept / "lorad.db", again / "lorad.db")
        assert disk["runs/1/spec.json"] == spec
        events = run_to_the_end(again, 1)
        assert adapter_bytes(again, 1) == expected, f"cut at {end}"
        manifest = manifest_of(again, events[-1])
        assert manifest["metrics"] == metrics
        assert manifest["exact_resume"] is True
        assert not list(again.rglob(".tmp-*"))


def version_of(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / VERSION / "version.json").read_text())
    return found
