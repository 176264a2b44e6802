"""A base model out of a GGUF file."""

import re
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from npu.quantize import Quantized
from trainer.models.base_model import BaseModel, check_tensors
from trainer.models.config import DecoderConfig, UnsupportedModelError
from trainer.models.config_gguf import config_from_gguf, rope_scaling_from_gguf
from trainer.models.gguf import GGUFError, GGUFFile
from trainer.models.gguf_native import NATIVE, repack
from trainer.models.gguf_tokenizer import special_tokens_from_gguf, tokenizer_from_gguf
from trainer.models.layout import tensor_shapes

_Value = TypeVar("_Value", bound=np.generic)

_ROPE_FACTORS = "rope_freqs.weight"
_NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def read_gguf_model(path: Path) -> BaseModel:
    """Open the file and check everything but the tensors' values.

    Raises GGUFError or UnsupportedModelError naming the key or tensor, OSError if it can't be read.
    """
    file = GGUFFile(path)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise UnsupportedModelError("tensor token_embd.weight is missing from the model's files")
    rope_factors = file.load(_ROPE_FACTORS) if _ROPE_FACTORS in file.tensors else None
    config = config_from_gguf(
        file.metadata,
        vocab_size=embedding.shape[0],
        tie_word_embeddings="output.weight" not in file.tensors,
        rope_factors=rope_factors,
    )
    _check_tensors(file, config)
    template = file.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        raise UnsupportedModelError(
            "tokenizer.chat_template is missing; use an instruction-tuned model that brings one"
        )

    def in_order(name: str, rows: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
        if config.family != "llama":
            return rows
        if name.endswith("q_proj"):
            return unpermute(rows, config.num_attention_heads)
        if name.endswith("k_proj"):
            return unpermute(rows, config.num_key_value_heads)
        return rows

    def load(name: str) -> npt.NDArray[np.float32]:
        return in_order(name, file.load(gguf_name(name)))

    def load_native(name: str) -> Quantized:
        tensor = file.tensors[gguf_name(name)]
        try:
            blocks = repack(file.raw(tensor.name), tensor.type, *tensor.shape)
        except ValueError as error:
            raise GGUFError(f"tensor {tensor.name}: {error}") from error
        assert blocks.scale is not None
        return Quantized(
            codes=in_order(name, blocks.codes),
            scale=in_order(name, blocks.scale),
            offset=None if blocks.offset is None else in_order(name, blocks.offset),
        )

    return BaseModel(
        config=config,
        source_format="gguf",
        tokenizer=tokenizer_from_gguf(file.metadata),
        chat_template=template,
        special_tokens=special_tokens_from_gguf(file.metadata),
        load=load,
        native={
            name: NATIVE[file.tensors[gguf_name(name)].type]
            for name, shape in tensor_shapes(config).items()
            if len(shape) == 2 and file.tensors[gguf_name(name)].type in NATIVE
        },
        load_native=load_native,
        rope_scaling=rope_scaling_from_gguf(file.metadata, rope_factors),
    )


def gguf_name(name: str) -> str:
    """GGUF's name of a decoder's tensor: layers.3.mlp.up_proj is blk.3.ffn_up.weight."""
    layer = re.fullmatch(r"layers\.(\d+)\.(.+?)(\.bias)?", name)
    if layer is None:
        return f"{_NAMES[name]}.weight"
    return f"blk.{layer[1]}.{_NAMES[layer[2]]}{layer[3] or '.weight'}"


def _check_tensors(file: GGUFFile, config: DecoderConfig) -> None:
    """Check that the file holds what the decoder needs, and nothing it would leave out."""
    found = {name: tensor.shape for name, tensor in file.tensors.items()}
    ignored = set()
    if config.family == "llama" and _ROPE_FACTORS in found:
        ignored = {_ROPE_FACTORS}
        if found[_ROPE_FACTORS] != (config.head_dim // 2,):
            raise UnsupportedModelError(
                f"tensor {_ROPE_FACTORS}: expected the shape {[config.head_dim // 2]}, half a "
                f"head, found {list(found[_ROPE_FACTORS])}"
            )
    check_tensors(config, found, gguf_name, ignored)


def unpermute(weight: npt.NDArray[_Value], heads: int) -> npt.NDArray[_Value]:
    """Rows of q_proj or k_proj [heads * head_dim, any] back in Hugging Face's order.

    llama.cpp rotates neighbouring rows of a Llama, Hugging Face a head's halves, so llama.cpp's
    converter (`LlamaModel.permute`) interleaves the halves; this is its inverse. Other families
    keep their order in GGUF.
    """
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def permute(weight: npt.NDArray[_Value], heads: int) -> npt.NDArray[_Value]:
    """Rows of q_proj or k_proj [heads * head_dim, any] in a Llama's GGUF order; see `unpermute`."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)
