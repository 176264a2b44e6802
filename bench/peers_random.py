"""A random model in the shape of Qwen2.5-0.5B, whose real weights can't be had everywhere.

What a step costs doesn't depend on the weights' values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.peers_base import Base, write_adapter, write_for_peers
from npu.weights import FrozenWeights, write_frozen_weights
from trainer.models.base_model import BaseModel
from trainer.models.config import DecoderConfig
from trainer.models.layout import tensor_shapes
from trainer.models.tiny import byte_tokenizer
from trainer.weight_plan import FormatChoice, plan_formats

QWEN_05B = DecoderConfig(
    family="qwen2",
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    head_dim=64,
    vocab_size=151_936,
    rms_norm_eps=1e-6,
    rope_theta=1_000_000.0,
    tie_word_embeddings=True,
    max_position_embeddings=32_768,
    attention_bias=True,
)


def prepare_random_base(folder: Path, config: DecoderConfig, format: FormatChoice) -> Base:
    """Write a random model of that shape and what the peers need below `folder`."""
    shapes = tensor_shapes(config)

    def load(name: str) -> npt.NDArray[np.float32]:
        shape = shapes[name]
        if name.endswith("norm"):
            return np.ones(shape, np.float32)
        random = np.random.default_rng([*name.encode()])
        return random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))

    model = BaseModel(config, "huggingface", byte_tokenizer(), "", {}, load)
    matrices = model.matrices()
    path = folder / "weights.lorad"
    metadata = {"config": config.to_json()}
    formats = plan_formats(format, matrices)
    write_frozen_weights(path, metadata, matrices, model.vectors(), format=formats)
    for_peers = folder / "peers"
    for_peers.mkdir()
    weights = FrozenWeights.open(path)
    write_for_peers(for_peers, config, weights)
    weights.close()
    adapter = folder / "adapter.safetensors"
    write_adapter(adapter, config)
    return Base(config, {format: str(path)}, str(for_peers), str(adapter))
