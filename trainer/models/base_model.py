"""A base model as read from any source, and how its tensors become the weight file's matrices.

Sources speak in a decoder's own tensor names, `layers.0.self_attn.q_proj`, whatever their file
calls them. Linears that share an input become one matrix, so that the NPU is called 4 times a layer
instead of 7:

    qkv_proj [nq + 2 nkv, hidden]  = q rows, k rows, v rows
    gate_up_proj [2 ffn, hidden]   = gate rows, up rows
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from npu.weights import MatrixSource
from trainer.models.config import DecoderConfig, UnsupportedModelError

TensorLoader = Callable[[str], npt.NDArray[np.float32]]
"""Gives a tensor of `tensor_shapes` by name: fp32, rows in Hugging Face's order."""

_FUSED: Mapping[str, tuple[str, ...]] = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.o_proj": ("self_attn.o_proj",),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj": ("mlp.down_proj",),
}


@dataclass(frozen=True)
class BaseModel:
    """What a source gave: everything checked except the tensors' values, which load on demand."""

    config: DecoderConfig
    source_format: Literal["gguf", "huggingface"]
    tokenizer: Tokenizer
    chat_template: str
    special_tokens: Mapping[str, str | None]
    load: TensorLoader

    @property
    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return sum(math.prod(shape) for shape in tensor_shapes(self.config).values())

    def matrices(self) -> list[MatrixSource]:
        """The weight file's matrices, fused, each loaded when it is due."""
        shapes = tensor_shapes(self.config)
        sources = [
            self._matrix(f"layers.{layer}.{name}", [f"layers.{layer}.{part}" for part in parts])
            for layer in range(self.config.num_hidden_layers)
            for name, parts in _FUSED.items()
        ]
        sources.append(self._matrix("embed_tokens", ["embed_tokens"]))
        if "lm_head" in shapes:
            sources.append(self._matrix("lm_head", ["lm_head"]))
        return sources

    def vectors(self) -> dict[str, npt.NDArray[np.float32]]:
        """The norms' weights, fp32 [hidden]."""
        shapes = tensor_shapes(self.config)
        return {name: self.load(name) for name, shape in shapes.items() if len(shape) == 1}

    def _matrix(self, name: str, parts: list[str]) -> MatrixSource:
        shapes = tensor_shapes(self.config)
        rows = sum(shapes[part][0] for part in parts)

        def load() -> npt.NDArray[np.float32]:
            if len(parts) == 1:
                return self.load(parts[0])
            return np.concatenate([self.load(part) for part in parts])

        return MatrixSource(name, (rows, shapes[parts[0]][1]), load)


def tensor_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a Llama decoder by name; matrices are [output, input]."""
    hidden, ffn = config.hidden_size, config.intermediate_size
    query, key_value = config.query_width, config.key_value_width
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (config.vocab_size, hidden)}
    for layer in range(config.num_hidden_layers):
        shapes |= {
            f"layers.{layer}.input_layernorm": (hidden,),
            f"layers.{layer}.self_attn.q_proj": (query, hidden),
            f"layers.{layer}.self_attn.k_proj": (key_value, hidden),
            f"layers.{layer}.self_attn.v_proj": (key_value, hidden),
            f"layers.{layer}.self_attn.o_proj": (hidden, query),
            f"layers.{layer}.post_attention_layernorm": (hidden,),
            f"layers.{layer}.mlp.gate_proj": (ffn, hidden),
            f"layers.{layer}.mlp.up_proj": (ffn, hidden),
            f"layers.{layer}.mlp.down_proj": (hidden, ffn),
        }
    shapes["norm"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, hidden)
    return shapes


def check_tensors(
    config: DecoderConfig,
    found: Mapping[str, tuple[int, ...]],
    file_name: Callable[[str], str],
    ignored: Iterable[str] = (),
) -> None:
    """Compare a file's tensors (`found`, in its own names) with what the decoder needs.

    `file_name` turns a decoder's tensor name into the file's. Raises UnsupportedModelError naming
    the first tensor that is missing, has another shape or is one the decoder wouldn't use.
    """
    if config.num_hidden_layers > len(found):
        raise UnsupportedModelError(
            f"the model's description names {config.num_hidden_layers} layers, but its files hold "
            f"only {len(found)} tensors"
        )
    expected = {file_name(name): shape for name, shape in tensor_shapes(config).items()}
    for name, shape in expected.items():
        if name not in found:
            raise UnsupportedModelError(f"tensor {name} is missing from the model's files")
        if found[name] != shape:
            raise UnsupportedModelError(
                f"tensor {name}: expected the shape {list(shape)} from the model's description, "
                f"found {list(found[name])}"
            )
    for name in sorted(found.keys() - expected.keys() - set(ignored)):
        raise UnsupportedModelError(
            f"tensor {name} is one this version has no use for; computing without it would be wrong"
        )
