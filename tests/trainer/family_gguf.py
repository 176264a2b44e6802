"""A `transformers` model of any family as the GGUF file llama.cpp's converter would make of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from transformers import PreTrainedModel

from tests.trainer.families import CHATML
from trainer.models.config_huggingface import rope_scaling_from_huggingface
from trainer.models.rope_scaling import Llama3Scaling
from trainer.models.tiny import byte_tokenizer


def _tokens(rows: int) -> dict[str, Any]:
    """The byte tokenizer's vocabulary, filled up to the embedding's rows."""
    vocabulary = byte_tokenizer().get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    types = [3 if token.startswith("<|") else 1 for token in tokens]
    unused = rows - len(tokens)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [*tokens, *(f"[PAD{index}]" for index in range(unused - 1)), "ab"],
        "tokenizer.ggml.token_type": [*types, *(5 for _ in range(unused - 1)), 1],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": vocabulary["<|im_end|>"],
        "tokenizer.chat_template": CHATML,
    }


def converted_factors(scaling: Llama3Scaling, frequencies: np.ndarray) -> np.ndarray:
    """`rope_freqs.weight` as llama.cpp's convert_hf_to_gguf.py computes it: float64, then fp32."""
    long = scaling.original_context / scaling.low_freq_factor
    short = scaling.original_context / scaling.high_freq_factor
    divisors = []
    for frequency in frequencies.astype(np.float64):
        length = 2 * np.pi / frequency
        if length < short:
            divisors.append(1.0)
        elif length > long:
            divisors.append(scaling.factor)
        else:
            kept = scaling.original_context / length - scaling.low_freq_factor
            kept /= scaling.high_freq_factor - scaling.low_freq_factor
            divisors.append(1 / ((1 - kept) / scaling.factor + kept))
    return np.array(divisors, np.float32)


def write_gguf(path: Path, model: PreTrainedModel, **keys: Any) -> Path:
    """Write the model in F32; `keys` are added to the metadata or replace it."""
    config = model.config
    family = config.model_type
    rope = config.rope_parameters
    head_dim = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    metadata = {
        f"{family}.block_count": config.num_hidden_layers,
        f"{family}.context_length": config.max_position_embeddings,
        f"{family}.embedding_length": config.hidden_size,
        f"{family}.feed_forward_length": config.intermediate_size,
        f"{family}.attention.head_count": config.num_attention_heads,
        f"{family}.attention.head_count_kv": config.num_key_value_heads,
        f"{family}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        f"{family}.rope.freq_base": float(rope["rope_theta"]),
        **_tokens(config.vocab_size),
        **keys,
    }
    if family != "qwen2":
        metadata |= {
            f"{family}.attention.key_length": head_dim,
            f"{family}.attention.value_length": head_dim,
        }
    if family == "llama":
        metadata[f"{family}.rope.dimension_count"] = head_dim
    tensors = dict(_tensors(model))
    if rope["rope_type"] == "linear":
        metadata |= {
            f"{family}.rope.scaling.type": "linear",
            f"{family}.rope.scaling.factor": rope["factor"],
        }
    if rope["rope_type"] == "llama3":
        scaling = rope_scaling_from_huggingface({"rope_parameters": rope})
        assert isinstance(scaling, Llama3Scaling)
        frequencies = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
        tensors["rope_freqs.weight"] = converted_factors(scaling, frequencies)
    write_gguf_file(path, family, metadata, tensors)
    return path


def write_gguf_file(
    path: Path,
    architecture: str,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray[Any, Any]],
    kinds: Mapping[str, int] | None = None,
) -> None:
    """Write a GGUF file of these keys and tensors with the gguf package.

    `kinds` names the tensors that aren't fp32 in it, and ggml's number of the type for each.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, values in tensors.items():
        kind = gguf.GGMLQuantizationType((kinds or {}).get(name, 0))
        stored = gguf.quants.quantize(np.ascontiguousarray(values, np.float32), kind)
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(model: PreTrainedModel) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """Each tensor under the name the gguf package gives it; a Llama's q and k rows interleaved."""
    config = model.config
    architecture = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == config.model_type)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    found = []
    for name, parameter in model.named_parameters():
        values = parameter.detach().float().numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(
            name.split(".")[-2]
        )
        if config.model_type == "llama" and heads is not None:
            rows, columns = values.shape
            values = values.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2)
            values = values.reshape(rows, columns)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        found.append((stored, values))
    return found
