"""A random model in the shape of Qwen2.5-0.5B, whose real weights can't be had everywhere."""

from __future__ import annotations

from pathlib import Path

from bench.peers_base import Base, write_adapter, write_for_peers
from bench.random_weights import write_random_weights
from npu.weights import FrozenWeights
from trainer.models.config import DecoderConfig
from trainer.weight_plan import FormatChoice

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
    path = folder / "weights.lorad"
    write_random_weights(path, config, format)
    for_peers = folder / "peers"
    for_peers.mkdir()
    weights = FrozenWeights.open(path)
    write_for_peers(for_peers, config, weights)
    weights.close()
    adapter = folder / "adapter.safetensors"
    write_adapter(adapter, config)
    return Base(config, {format: str(path)}, str(for_peers), str(adapter))
