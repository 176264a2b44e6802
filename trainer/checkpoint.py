"""Checkpoints: complete or invisible, and refused if they belong to another computation.

`step-00000040/` holds the adapter, the optimizer's moments, a state file and, with early stopping,
the best adapter so far; `manifest.json` has the hash of each, the identity of the run and a hash of
itself. The newest whose hashes hold is resumed; a damaged one is passed over; one of another base,
rank, target set or example list is refused. The previous checkpoint stays until the next is
published. One that takes the place of all before it, also of the same step, is
`step-00000040.0001/`, and counts as the newer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trainer.durable import file_sha256, published
from trainer.safetensors_file import SafetensorsFile, write_safetensors
from trainer.spec import RunSpec

_log = logging.getLogger(__name__)
_FILES = ("adapter.safetensors", "optimizer.safetensors", "state.json")
_BEST = "best.safetensors"
_NAME = re.compile(r"step-\d{8,}(\.\d{4,})?")
_KEEP = 2


class CheckpointMismatchError(ValueError):
    """The checkpoint is whole, but of another computation; the message names both sides."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on."""

    step: int
    adapter: Mapping[str, np.ndarray]
    optimizer: Mapping[str, np.ndarray]
    state: Mapping[str, Any]
    """JSON-able: measurements so far, environment, which examples (`RunState`)."""
    best: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The best adapter so far (`trainer.validation`); empty if there is none."""


def run_identity(spec: RunSpec) -> dict[str, Any]:
    """What two processes must agree on to be one run, JSON-able."""
    ids = json.dumps([spec.train_example_ids, spec.holdout_example_ids]).encode()
    return {
        "base_hash": spec.base_hash,
        **spec.shape(),
        "example_ids_sha256": hashlib.sha256(ids).hexdigest(),
    }


def save_checkpoint(
    folder: Path, spec: RunSpec, checkpoint: Checkpoint, *, replacing: bool = False
) -> None:
    """Publish a checkpoint below `folder`; drop all but the newest two.

    A whole checkpoint of the same step is left as it is. With `replacing` the new one takes the
    place of ALL earlier ones, also of the same step: they hold what must not stay. They go only
    after the new one's hashes were found right on the disk. What lies there of a later step is
    damaged, or the run would have gone on from it, and goes, too.

    Raises:
        OSError: if it can't be written, or isn't read back as it was written.
    """
    final = folder / f"step-{checkpoint.step:08d}"
    same = [path for path in _newest_first(folder) if path.name.startswith(final.name)]
    if replacing:
        number = _revision(same[0]) + 1 if same else 1
        final = folder / f"{final.name}.{number:04d}"
    elif any(_is_whole(path) for path in same):
        return
    else:
        for damaged in same:
            shutil.rmtree(damaged)
    _write(final, spec, checkpoint)
    if replacing and not _is_whole(final):
        raise OSError(f"expected {final.name} as it was written, found it damaged; check the disk")
    ordered = _newest_first(folder)
    place = ordered.index(final)
    for useless in (*ordered[:place], *ordered[place + (1 if replacing else _KEEP) :]):
        shutil.rmtree(useless, ignore_errors=True)


def finish_replacing(folder: Path) -> None:
    """Remove what a replacing checkpoint left of the earlier ones because of a kill."""
    ordered = _newest_first(folder)
    for place, path in enumerate(ordered):
        if _revision(path) and _is_whole(path):
            for old in ordered[place + 1 :]:
                shutil.rmtree(old, ignore_errors=True)
            return


def _write(final: Path, spec: RunSpec, checkpoint: Checkpoint) -> None:
    with published(final) as temporary:
        write_safetensors(temporary / _FILES[0], checkpoint.adapter, {})
        write_safetensors(temporary / _FILES[1], checkpoint.optimizer, {})
        (temporary / _FILES[2]).write_text(json.dumps(checkpoint.state), encoding="utf-8")
        if checkpoint.best:
            write_safetensors(temporary / _BEST, checkpoint.best, {})
        names = (*_FILES, _BEST) if checkpoint.best else _FILES
        manifest = {
            "step": checkpoint.step,
            "identity": run_identity(spec),
            "files": {name: file_sha256(temporary / name) for name in names},
        }
        manifest["sha256"] = _manifest_sha256(manifest)
        (temporary / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def load_newest_checkpoint(folder: Path, spec: RunSpec) -> Checkpoint | None:
    """The newest whole checkpoint, or None if there is none.

    Raises:
        CheckpointMismatchError: if it was made with another base, rank, target set, training
            setting or example list.
    """
    for path in _newest_first(folder):
        manifest = _whole_manifest(path)
        if manifest is None:
            _log.warning("%s is damaged and passed over", path.name)
            continue
        _check_identity(path.name, expected=run_identity(spec), found=manifest["identity"])
        return Checkpoint(
            step=manifest["step"],
            adapter=_arrays(path / _FILES[0]),
            optimizer=_arrays(path / _FILES[1]),
            state=json.loads((path / _FILES[2]).read_text(encoding="utf-8")),
            best=_arrays(path / _BEST) if _BEST in manifest["files"] else {},
        )
    return None


def newest_step(folder: Path) -> int | None:
    """After which step the newest whole checkpoint was made; None if there is none."""
    for path in _newest_first(folder):
        if (manifest := _whole_manifest(path)) is not None:
            step: int = manifest["step"]
            return step
    return None


def _newest_first(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)]
    return sorted(found, reverse=True)  # "step-1.0001" comes after "step-1"


def _revision(path: Path) -> int:
    return int(path.suffix[1:] or 0)


def _is_whole(path: Path) -> bool:
    return _whole_manifest(path) is not None


def _whole_manifest(path: Path) -> dict[str, Any] | None:
    """A checkpoint's manifest, if all hashes hold; else None."""
    try:
        manifest: dict[str, Any] = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        # An earlier lorad's manifest has no hash of itself.
        if manifest.get("sha256") not in (None, _manifest_sha256(manifest)):
            return None
        if not manifest.keys() >= {"step", "identity"}:
            return None
        names = (*_FILES, _BEST) if _BEST in manifest["files"] else _FILES
        whole = all(file_sha256(path / name) == manifest["files"][name] for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if whole else None


def _manifest_sha256(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _check_identity(name: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    wanted, there = _flat(expected), _flat(found)
    for key in sorted(wanted.keys() | there.keys()):
        if wanted.get(key) != there.get(key):
            raise CheckpointMismatchError(
                f"expected {name} of a run with {key} {wanted.get(key)!r}, found"
                f" {there.get(key)!r}; start a new run"
            )


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON would give it back, with the fields of an object as `object.field`."""
    flat: dict[str, Any] = {}
    for key, value in json.loads(json.dumps(identity)).items():
        if isinstance(value, dict):
            flat |= {f"{key}.{field}": inner for field, inner in value.items()}
        else:
            flat[key] = value
    return flat


def _arrays(path: Path) -> dict[str, np.ndarray]:
    file = SafetensorsFile(path)
    return {name: np.array(file.load(name)) for name in file.names()}
