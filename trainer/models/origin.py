"""Where a base model comes from: a GGUF file or a Hugging Face folder, and how to know it again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trainer.durable import file_sha256
from trainer.models.base_model import BaseModel
from trainer.models.gguf_model import read_gguf_model
from trainer.models.huggingface import read_huggingface_model


def read_model(path: Path) -> BaseModel:
    """Open the file or folder; see its reader for what is raised."""
    return read_huggingface_model(path) if path.is_dir() else read_gguf_model(path)


def model_files(path: Path) -> list[Path]:
    """The file itself, or a folder's description and weights, in a fixed order."""
    if not path.is_dir():
        return [path]
    return [path / "config.json", *sorted(path.glob("*.safetensors"))]


def origin_sha256(path: Path) -> str:
    """Hex SHA-256 of a file, or of the names and hashes of a folder's `model_files`.

    Raises OSError if one can't be read.
    """
    if not path.is_dir():
        return file_sha256(path)
    listed = [f"{file_sha256(file)}  {file.name}\n" for file in model_files(path)]
    return hashlib.sha256("".join(listed).encode()).hexdigest()
