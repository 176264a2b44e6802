"""A base model as read from any source, and how its tensors become the weight file's matrices.

Sources speak in a decoder's own tensor names, `layers.0.self_attn.q_proj`, whatever their file
calls them; `layout.py` says which there are.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from npu.quantize import Quantized
from npu.weights import MatrixSource, WeightFormat
from trainer.models.config import DecoderConfig, UnsupportedModelError
from trainer.models.layout import MODULES, PRODUCTS, ROPE_VECTOR, tensor_shapes
from trainer.models.rope_scaling import RopeScaling

TensorLoader = Callable[[str], npt.NDArray[np.float32]]
"""Gives a tensor of `tensor_shapes` by name: fp32, rows in Hugging Face's order."""


@dataclass(frozen=True)
class BaseModel:
    """What a source gave: everything checked except the tensors' values, which load on demand."""

    config: DecoderConfig
    source_format: Literal["gguf", "huggingface"]
    tokenizer: Tokenizer
    chat_template: str
    special_tokens: Mapping[str, str | None]
    load: TensorLoader
    native: Mapping[str, WeightFormat] = field(default_factory=dict)
    """The tensors that the source itself has in one of our 4-bit formats."""
    load_native: Callable[[str], Quantized] | None = None
    """Gives such a tensor as it is; its rows are in the same order as those of `load`."""
    rope_scaling: RopeScaling | None = None
    """How the rotary frequencies are stretched, where `config.rope_scaled`."""

    @property
    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return sum(math.prod(shape) for shape in tensor_shapes(self.config).values())

    def matrices(self) -> list[MatrixSource]:
        """The weight file's matrices, fused, each loaded when it is due."""
        shapes = tensor_shapes(self.config)
        sources = [
            self._matrix(
                f"layers.{layer}.{product}",
                [f"layers.{layer}.{MODULES[linear]}.{linear}" for linear in linears],
            )
            for layer in range(self.config.num_hidden_layers)
            for product, linears in PRODUCTS.items()
        ]
        sources.append(self._matrix("embed_tokens", ["embed_tokens"]))
        if "lm_head" in shapes:
            sources.append(self._matrix("lm_head", ["lm_head"]))
        return sources

    def vectors(self) -> dict[str, npt.NDArray[np.float32]]:
        """The norms' weights, the biases and scaled rotary frequencies, each fp32 [length]."""
        shapes = tensor_shapes(self.config)
        vectors = {name: self.load(name) for name, shape in shapes.items() if len(shape) == 1}
        if self.rope_scaling is not None:
            # Here, because it loads torch, which nothing else that adds a model needs: numpy's own
            # powers differ from those of the models' makers in the last bit.
            from trainer.models.rope import unscaled_inverse_frequencies

            unscaled = unscaled_inverse_frequencies(self.config).numpy()
            vectors[ROPE_VECTOR] = self.rope_scaling.scaled(unscaled)
        return vectors

    def _matrix(self, name: str, parts: list[str]) -> MatrixSource:
        shapes = tensor_shapes(self.config)
        rows = sum(shapes[part][0] for part in parts)

        def load() -> npt.NDArray[np.float32]:
            if len(parts) == 1:
                return self.load(parts[0])
            return np.concatenate([self.load(part) for part in parts])

        shape = (rows, shapes[parts[0]][1])
        formats = {self.native.get(part) for part in parts}
        load_tensor = self.load_native
        if load_tensor is None or len(formats) > 1 or None in formats:
            return MatrixSource(name, shape, load)
        return MatrixSource(
            name,
            shape,
            load,
            native=self.native[parts[0]],
            load_native=lambda: _stacked([load_tensor(part) for part in parts]),
        )


def _stacked(parts: list[Quantized]) -> Quantized:
    """The rows of all parts, which have one 4-bit format, as one matrix."""
    if len(parts) == 1:
        return parts[0]
    return Quantized(
        codes=np.concatenate([part.codes for part in parts]),
        scale=np.concatenate([part.scale for part in parts if part.scale is not None]),
        offset=None
        if parts[0].offset is None
        else np.concatenate([part.offset for part in parts if part.offset is not None]),
    )


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
