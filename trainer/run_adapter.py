"""The adapters of one run: the one that it trains, and the one that was active before."""

from __future__ import annotations

import json
from pathlib import Path

from trainer.durable import file_sha256
from trainer.export.peft import TENSOR_FILE, load_peft_folder
from trainer.lora import LoraAdapter
from trainer.models.config import DecoderConfig
from trainer.spec import RunSpec


def fresh_adapter(config: DecoderConfig, spec: RunSpec) -> LoraAdapter:
    """An adapter as the run begins with.

    Raises:
        ValueError: if the model has fewer layers than are to be adapted.
    """
    return LoraAdapter(
        config,
        rank=spec.rank,
        alpha=spec.alpha,
        targets=spec.targets,
        use_rslora=spec.use_rslora,
        seed=spec.training.seed,
        layers=spec.top_layers,
    )


def begin_warm(home: Path, adapter: LoraAdapter, spec: RunSpec) -> None:
    """Give the fresh adapter the numbers of the version that the run begins with, if with one.

    Raises:
        ValueError: if the version is gone, damaged, or of another base or shape.
    """
    if spec.warm_start is None:
        return
    try:
        _load_version(home / spec.warm_start.path, adapter, spec)
    except FileNotFoundError as error:
        raise ValueError(
            f"expected version {spec.warm_start.version} to begin with, found no"
            f" {Path(error.filename).name} of it; train without warm_start, or with another version"
        ) from error


def active_adapter(home: Path, config: DecoderConfig, spec: RunSpec) -> LoraAdapter | None:
    """The version that was active when the run was made; None if it was deleted since."""
    if spec.active_version is None:
        return None
    active = fresh_adapter(config, spec)
    try:
        _load_version(home / spec.active_version, active, spec)
    except FileNotFoundError:
        return None
    return active


def _load_version(folder: Path, adapter: LoraAdapter, spec: RunSpec) -> None:
    """Load a version, once it is known to be whole and for the run's base."""
    manifest = json.loads((folder / "version.json").read_bytes())
    if manifest["base_hash"] != spec.base_hash:
        raise ValueError(
            f"expected a version on the base model {spec.base_hash}, found one on"
            f" {manifest['base_hash']}; adapters belong to one base, so use another version"
        )
    expected, found = manifest["files"][TENSOR_FILE], file_sha256(folder / TENSOR_FILE)
    if found != expected:
        raise ValueError(
            f"expected {TENSOR_FILE} of {folder.name} with SHA-256 {expected}, found {found}; the"
            " version is damaged, so use another one or none"
        )
    load_peft_folder(folder, adapter)
