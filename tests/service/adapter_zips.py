"""Zip files of adapters for the stand-in model, as PEFT would have saved them."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.service.daemon import MODEL
from trainer.export.peft import PeftSettings, write_peft_files
from trainer.models.config import DecoderConfig
from trainer.peft_import.expected import Expected

CONFIG = DecoderConfig(
    family="llama",
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    vocab_size=258,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    tie_word_embeddings=True,
    max_position_embeddings=512,
)


def complete_model(home: Path) -> None:
    """Give the stand-in model the description that a real one has."""
    path = home / "models" / MODEL / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"config": CONFIG.to_json()}))


def adapter_zip(
    folder: Path, *, seed: int = 0, base_hash: str = "sha256:tiny", **ours: Any
) -> bytes:
    """An adapter with the default settings, but for ``ours``, of random numbers."""
    settings = {
        "base_model": MODEL,
        "base_hash": base_hash,
        "rank": 8,
        "alpha": 16.0,
        "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        "use_rslora": False,
        "top_layers": None,
    }
    made = Expected.of(settings | ours, CONFIG)
    numbers = np.random.default_rng(seed)
    arrays = {
        key: numbers.standard_normal(shape).astype(np.float32)
        for key, shape in made.shapes().items()
    }
    place = folder / f"made-{seed}"
    place.mkdir(exist_ok=True)
    peft = PeftSettings(made.rank, made.alpha, made.targets, made.use_rslora, made.layers, 4)
    write_peft_files(place, peft, arrays, base_model=MODEL, base_hash=base_hash)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(place.iterdir()):
            archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes())
    return packed.getvalue()
