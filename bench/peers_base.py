"""The base model of a race: our weight files of it, and the same effective weights for the peers.

Added by lorad's own `add_model`. What the peers get, in fp32, is what the codes of the first format
mean: so all contestants but those of other formats compute the same function.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from npu.weights import FrozenWeights
from trainer.add_model import add_model
from trainer.lora import LoraAdapter
from trainer.models.config import DecoderConfig
from trainer.models.huggingface import huggingface_name
from trainer.models.layout import MODULES, PRODUCTS, linear_shape
from trainer.safetensors_file import write_safetensors
from trainer.weight_plan import FormatChoice

RANK, ALPHA = 8, 16.0
_RANDOM_B = 0.01
"""Standard deviation of lora_B: at zero the first step has no gradient for lora_A."""


@dataclass(frozen=True)
class Base:
    """Where everything of one base lies."""

    config: DecoderConfig
    weights: dict[str, str]
    """Our files by format; the first one's effective weights are those of `folder`."""
    folder: str
    """What the peers load."""
    adapter: str
    """The adapter to start from, of all layers."""


def prepare_base(folder: Path, source: str, formats: Sequence[FormatChoice]) -> Base:
    """Add `source` in each of `formats` and write what the peers need below `folder`."""
    weights: dict[str, Path] = {}
    for format in formats:
        add_model(folder, format, source, format)
        weights[format] = folder / "models" / format / "weights.lorad"
    for_peers = folder / "peers"
    for_peers.mkdir()
    first = folder / "models" / formats[0]
    shutil.copy(first / "tokenizer.json", for_peers)
    opened = FrozenWeights.open(weights[formats[0]])
    config = DecoderConfig.from_json(opened.metadata["config"])
    write_for_peers(for_peers, config, opened)
    opened.close()
    adapter = folder / "adapter.safetensors"
    write_adapter(adapter, config)
    paths = {format: str(path) for format, path in weights.items()}
    return Base(config, paths, str(for_peers), str(adapter))


def write_for_peers(folder: Path, config: DecoderConfig, weights: FrozenWeights) -> None:
    """config.json and model.safetensors with the effective weights, fp32."""
    (folder / "config.json").write_text(json.dumps(huggingface_config(config), indent=2))
    tensors = effective_weights(config, weights)
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})


def huggingface_config(config: DecoderConfig) -> dict[str, Any]:
    """What `transformers` calls this decoder; its rotary frequencies aren't scaled."""
    architectures = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
    return {
        "architectures": [architectures[config.family]],
        "model_type": config.family,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tie_word_embeddings,
        "max_position_embeddings": config.max_position_embeddings,
        "torch_dtype": "float32",
    }


def effective_weights(
    config: DecoderConfig, weights: FrozenWeights
) -> dict[str, npt.NDArray[np.float32]]:
    """Every tensor under its Hugging Face name, our fused matrices split into their linears."""
    tensors = {}
    for name, matrix in weights.matrices.items():
        values = matrix.dequantize()
        layer, _, product = name.removeprefix("layers.").partition(".")
        if product not in PRODUCTS:
            tensors[huggingface_name(name)] = values
            continue
        linears = PRODUCTS[product]
        ends = np.cumsum([linear_shape(config, linear)[0] for linear in linears])[:-1]
        for linear, rows in zip(linears, np.split(values, ends), strict=True):
            tensors[huggingface_name(f"layers.{layer}.{MODULES[linear]}.{linear}")] = rows
    for name, vector in weights.vectors.items():
        tensors[huggingface_name(name)] = np.array(vector)
    return tensors


def write_adapter(path: Path, config: DecoderConfig) -> None:
    """PEFT's initial lora_A, and a small random lora_B, on all linears of all layers."""
    adapter = LoraAdapter(config, rank=RANK, alpha=ALPHA, seed=0)
    adapter.randomise(torch.Generator().manual_seed(1), _RANDOM_B)
    write_safetensors(path, adapter.to_arrays(), {"format": "pt"})
