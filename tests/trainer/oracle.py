"""The same model twice: ours on frozen weights, and `transformers`' on the effective weights."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.opening import open_engine
from npu.weights import FrozenWeights, MatrixSource, write_frozen_weights
from trainer.lora import TARGETS, LoraAdapter
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.models.layout import linear_shape
from trainer.weight_plan import FormatChoice, plan_formats

TINY = DecoderConfig(
    family="llama",
    hidden_size=32,  # whole blocks of 32 columns: 1, 2 (of o_proj) and 3
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,  # 4 heads of 16 are 64, not the hidden size: hides no transposition
    vocab_size=131,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    tie_word_embeddings=True,
    max_position_embeddings=512,
)


@dataclass
class Pair:
    """Our decoder and the oracle."""

    config: DecoderConfig
    weights: FrozenWeights
    engine: Engine
    decoder: Decoder
    oracle: LlamaForCausalLM


def write_tiny_weights(
    path: Path, config: DecoderConfig = TINY, weight_format: FormatChoice = "int8", seed: int = 0
) -> None:
    """A random model of this shape: uneven scales, norm weights that are not all one."""
    random = np.random.default_rng(seed)
    shapes = {"embed_tokens": (config.vocab_size, config.hidden_size)}
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, config.hidden_size)
    vectors = {"norm": random.uniform(0.5, 1.5, config.hidden_size).astype(np.float32)}
    for layer in range(config.num_hidden_layers):
        fused = (("self_attn.qkv_proj", TARGETS[:3]), ("self_attn.o_proj", TARGETS[3:4]))
        fused += (("mlp.gate_up_proj", TARGETS[4:6]), ("mlp.down_proj", TARGETS[6:]))
        for name, targets in fused:
            outs = sum(linear_shape(config, target)[0] for target in targets)
            shapes[f"layers.{layer}.{name}"] = (outs, linear_shape(config, targets[0])[1])
        for norm in ("input_layernorm", "post_attention_layernorm"):
            vectors[f"layers.{layer}.{norm}"] = random.uniform(0.5, 1.5, config.hidden_size).astype(
                np.float32
            )

    def load(name: str) -> np.ndarray:
        rows, columns = shapes[name]
        own = np.random.default_rng([seed, *name.encode()])
        row_scale = own.uniform(0.3, 2.0, (rows, 1))
        return (own.standard_normal((rows, columns)) * row_scale / np.sqrt(columns)).astype(
            np.float32
        )

    sources = [
        MatrixSource(name, shape, lambda name=name: load(name)) for name, shape in shapes.items()
    ]
    metadata = {"config": config.to_json()}
    formats = plan_formats(weight_format, sources)
    write_frozen_weights(path, metadata, sources, vectors, format=formats)


def oracle_of(
    config: DecoderConfig, weights: FrozenWeights, dtype: torch.dtype
) -> LlamaForCausalLM:
    """`transformers`' model with exactly the effective weights of the frozen file."""
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            vocab_size=config.vocab_size,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tie_word_embeddings,
            max_position_embeddings=config.max_position_embeddings,
            attn_implementation="eager",
        )
    )
    state = {}
    for name, matrix in weights.matrices.items():
        values = torch.from_numpy(matrix.dequantize())
        prefix, _, last = name.rpartition(".")
        if last == "qkv_proj":
            parts, targets = _split(config, values, TARGETS[:3]), TARGETS[:3]
        elif last == "gate_up_proj":
            parts, targets = _split(config, values, TARGETS[4:6]), TARGETS[4:6]
        else:
            parts, targets = [values], [last]
        for part, target in zip(parts, targets, strict=True):
            key = f"{prefix}.{target}.weight" if prefix else f"{target}.weight"
            state[key if target == "lm_head" else f"model.{key}"] = part
    for name, vector in weights.vectors.items():
        state[f"model.{name}.weight"] = torch.tensor(vector)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model.to(dtype).eval()


def _split(
    config: DecoderConfig, values: torch.Tensor, targets: tuple[str, ...]
) -> list[torch.Tensor]:
    return list(values.split([linear_shape(config, target)[0] for target in targets]))


def make_pair(
    folder: Path,
    config: DecoderConfig = TINY,
    *,
    engine: str = "torch_cpu",
    weight_format: FormatChoice = "int8",
    dtype: torch.dtype = torch.float64,
) -> Pair:
    """Both models on the same random weights."""
    path = folder / "weights.lorad"
    if not path.exists():
        write_tiny_weights(path, config, weight_format)
    weights = FrozenWeights.open(path)
    opened = open_engine(weights, engine, EngineOptions(threads=1))
    return Pair(
        config, weights, opened, Decoder(config, weights, opened), oracle_of(config, weights, dtype)
    )


def randomise_b(adapter: LoraAdapter, seed: int = 1) -> None:
    """With lora_B at zero every gradient of lora_A is zero, and proves nothing."""
    generator = torch.Generator().manual_seed(seed)
    adapter.randomise(generator, 0.05)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Frobenius norm of the difference over that of the expected."""
    expected = expected.detach().double()
    return float((found.detach().double() - expected).norm() / expected.norm())
