"""A decoder's shape and rotary scaling out of GGUF metadata.

Every key but `general.architecture` begins with the architecture's name; errors give it whole.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.models.config import DecoderConfig, UnsupportedModelError, check_family
from trainer.models.description import even_share, refuse_others, required, required_int
from trainer.models.rope_scaling import FactorScaling, Frequencies, LinearScaling, RopeScaling

_ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "rope.scaling.type": ("none", "linear"),
    "rope.scaling.attn_factor": (1.0,),
    "rope.dimension_sections": (),
    "expert_count": (0,),
    "attention.sliding_window": (0,),
    "attention.causal": (True,),
    "attention.scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
}


def config_from_gguf(
    metadata: Mapping[str, Any],
    *,
    vocab_size: int,
    tie_word_embeddings: bool,
    rope_factors: Frequencies | None = None,
) -> DecoderConfig:
    """Read the metadata of a file whose `general.architecture` is one of FAMILIES.

    `vocab_size` is the number of rows of `token_embd.weight`, and the head is tied when the file
    has no `output.weight`: the metadata doesn't say either reliably. `rope_factors` is
    `rope_freqs.weight`, where the file has it. Raises UnsupportedModelError naming the key.
    """
    family = check_family(metadata.get("general.architecture"), "general.architecture")
    refuse_others(metadata, {f"{family}.{key}": values for key, values in _ALLOWED.items()})
    heads = required_int(metadata, f"{family}.attention.head_count")
    hidden = required_int(metadata, f"{family}.embedding_length")
    head_dim = metadata.get(f"{family}.attention.key_length")
    if head_dim is None:
        head_dim = even_share(hidden, heads, f"{family}.embedding_length", "head_count")
    for key in (f"{family}.attention.value_length", f"{family}.rope.dimension_count"):
        if metadata.get(key, head_dim) != head_dim:
            raise UnsupportedModelError(
                f"{key} is {metadata[key]!r}; "
                f"this version needs it equal to the head size {head_dim}"
            )
    key_value_heads = metadata.get(f"{family}.attention.head_count_kv", heads)
    if type(key_value_heads) is not int:
        raise UnsupportedModelError(
            f"{family}.attention.head_count_kv differs from layer to layer; "
            "this version needs one number"
        )
    return DecoderConfig(
        family=family,
        hidden_size=hidden,
        intermediate_size=required_int(metadata, f"{family}.feed_forward_length"),
        num_hidden_layers=required_int(metadata, f"{family}.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        rms_norm_eps=_shortest(required(metadata, f"{family}.attention.layer_norm_rms_epsilon")),
        rope_theta=_shortest(metadata.get(f"{family}.rope.freq_base", 10000.0)),
        tie_word_embeddings=tie_word_embeddings,
        max_position_embeddings=required_int(metadata, f"{family}.context_length"),
        attention_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        rope_scaled=rope_scaling_from_gguf(metadata, rope_factors) is not None,
    )


def rope_scaling_from_gguf(
    metadata: Mapping[str, Any], rope_factors: Frequencies | None
) -> RopeScaling | None:
    """How the file stretches its rotary frequencies; None if it doesn't.

    As in llama.cpp, a factor without a type means linear, and a factor of 0 none. Raises
    UnsupportedModelError naming the key.
    """
    architecture = metadata.get("general.architecture")
    kind = metadata.get(f"{architecture}.rope.scaling.type", "linear")
    key = f"{architecture}.rope.scaling.factor"
    if key not in metadata:
        key = f"{architecture}.rope.scale_linear"
    factor = _shortest(metadata.get(key, 0.0))
    if type(factor) is not float or not 0 <= factor < float("inf"):
        raise UnsupportedModelError(f"{key} is {factor!r}; expected a number > 0")
    linear = kind == "linear" and factor not in (0, 1)
    if rope_factors is None:
        return LinearScaling(factor) if linear else None
    if linear:
        raise UnsupportedModelError(
            f"{key} is {factor}, and the file has rope_freqs.weight too; "
            "this version supports only one rope scaling"
        )
    if not (np.isfinite(rope_factors).all() and (rope_factors > 0).all()):
        raise UnsupportedModelError("tensor rope_freqs.weight: expected finite numbers > 0")
    return FactorScaling(rope_factors)


def _shortest(value: Any) -> Any:
    """A float32 of the file as the shortest decimal that means it (9.99999975e-06 is 1e-05).

    So the same model has the same config from GGUF and from config.json.
    """
    return float(str(np.float32(value))) if isinstance(value, float) else value
