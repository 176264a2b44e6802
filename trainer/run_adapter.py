"""The adapters of one run: the one that it trains, and the one that was active before."""

from __future__ import annotations

from pathlib import Path

from trainer.export.peft import load_peft_folder
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


def active_adapter(home: Path, config: DecoderConfig, spec: RunSpec) -> LoraAdapter | None:
    """The version that was active when the run was made; None if it was deleted since."""
    if spec.active_version is None:
        return None
    active = fresh_adapter(config, spec)
    try:
        load_peft_folder(home / spec.active_version, active)
    except FileNotFoundError:
        return None
    return active
