"""The shape of a decoder: one dataclass, read from config.json or from GGUF metadata.

What the trainer doesn't compute yet (rope scaling, biases, sliding windows, other activations and
architectures) is refused here by the name the file gives it: a model that loaded with such a
setting ignored would train on wrong activations without any sign of it.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np


class UnsupportedModelError(ValueError):
    """A base model needs something this version doesn't compute, or its description is broken."""


@dataclass(frozen=True)
class DecoderConfig:
    """Everything a Llama decoder's arithmetic depends on besides its weights.

    `head_dim` may differ from `hidden_size / num_attention_heads`; `tie_word_embeddings` means that
    the output head is `embed_tokens`. Raises UnsupportedModelError naming the field.
    """

    family: Literal["llama"]
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    max_position_embeddings: int

    def __post_init__(self) -> None:
        """Check every field's type and range, and what must divide what."""
        if self.family != "llama":
            raise UnsupportedModelError(
                f"architecture is {self.family!r}; this version trains only 'llama' models"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and (type(value) is not int or value < 1):
                raise UnsupportedModelError(
                    f"{field.name} is {value!r}; expected a whole number > 0"
                )
            if field.type is float and (type(value) is not float or not 0 < value < math.inf):
                raise UnsupportedModelError(f"{field.name} is {value!r}; expected a number > 0")
            if field.type is bool and type(value) is not bool:
                raise UnsupportedModelError(f"{field.name} is {value!r}; expected true or false")
        if self.head_dim % 2:
            raise UnsupportedModelError(
                f"head_dim is {self.head_dim}; rotary positions need an even number"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise UnsupportedModelError(
                f"num_attention_heads {self.num_attention_heads} is no multiple of "
                f"num_key_value_heads {self.num_key_value_heads}"
            )

    @property
    def query_width(self) -> int:
        """Rows of q_proj: heads x head_dim."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_width(self) -> int:
        """Rows of k_proj and of v_proj: key-value heads x head_dim."""
        return self.num_key_value_heads * self.head_dim

    def to_json(self) -> dict[str, Any]:
        """The JSON object stored in the weight file and the manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "DecoderConfig":
        """Read what `to_json` wrote; an unknown or missing field is refused by name."""
        expected = {field.name for field in fields(cls)}
        for name in sorted(expected - data.keys()):
            raise UnsupportedModelError(
                f"the model's stored config lacks {name}; add the model again"
            )
        for name in sorted(data.keys() - expected):
            raise UnsupportedModelError(
                f"the model's stored config has {name}, which this version doesn't know; "
                "update lorad or add the model again"
            )
        return cls(**data)

    @classmethod
    def from_huggingface(cls, config: Mapping[str, Any]) -> "DecoderConfig":
        """Read a Hugging Face config.json of `model_type` llama."""
        model_type = config.get("model_type")
        if model_type != "llama":
            raise UnsupportedModelError(
                f"config.json: model_type is {model_type!r}; "
                "this version trains only 'llama' models"
            )
        _refuse_huggingface_extras(config)
        heads = _required_int(config, "num_attention_heads")
        hidden = _required_int(config, "hidden_size")
        head_dim = config.get("head_dim")
        if head_dim is None:
            head_dim = _even_share(hidden, heads, "config.json: hidden_size", "num_attention_heads")
        key_value_heads = config.get("num_key_value_heads")
        return cls(
            family="llama",
            hidden_size=hidden,
            intermediate_size=_required_int(config, "intermediate_size"),
            num_hidden_layers=_required_int(config, "num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=heads if key_value_heads is None else key_value_heads,
            head_dim=head_dim,
            vocab_size=_required_int(config, "vocab_size"),
            rms_norm_eps=_as_float(config.get("rms_norm_eps", 1e-6)),
            rope_theta=_as_float(_huggingface_rope_theta(config)),
            # transformers writes only what differs from its own default, which is untied for Llama
            tie_word_embeddings=config.get("tie_word_embeddings", False),
            max_position_embeddings=_required_int(config, "max_position_embeddings"),
        )

    @classmethod
    def from_gguf(
        cls, metadata: Mapping[str, Any], *, vocab_size: int, tie_word_embeddings: bool
    ) -> "DecoderConfig":
        """Read GGUF metadata of `general.architecture` llama.

        `vocab_size` is the number of rows of `token_embd.weight`, and the head is tied when the
        file has no `output.weight`: the metadata doesn't say either reliably.
        """
        architecture = metadata.get("general.architecture")
        if architecture != "llama":
            raise UnsupportedModelError(
                f"general.architecture is {architecture!r}; this version trains only 'llama' models"
            )
        _refuse_gguf_extras(metadata)
        heads = _required_int(metadata, "llama.attention.head_count")
        hidden = _required_int(metadata, "llama.embedding_length")
        head_dim = metadata.get("llama.attention.key_length")
        if head_dim is None:
            head_dim = _even_share(hidden, heads, "llama.embedding_length", "head_count")
        for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
            if metadata.get(key, head_dim) != head_dim:
                raise UnsupportedModelError(
                    f"{key} is {metadata[key]!r}; "
                    f"this version needs it equal to the head size {head_dim}"
                )
        key_value_heads = metadata.get("llama.attention.head_count_kv", heads)
        if type(key_value_heads) is not int:
            raise UnsupportedModelError(
                "llama.attention.head_count_kv differs from layer to layer; "
                "this version needs one number"
            )
        return cls(
            family="llama",
            hidden_size=hidden,
            intermediate_size=_required_int(metadata, "llama.feed_forward_length"),
            num_hidden_layers=_required_int(metadata, "llama.block_count"),
            num_attention_heads=heads,
            num_key_value_heads=key_value_heads,
            head_dim=head_dim,
            vocab_size=vocab_size,
            rms_norm_eps=_shortest(_required(metadata, "llama.attention.layer_norm_rms_epsilon")),
            rope_theta=_shortest(metadata.get("llama.rope.freq_base", 10000.0)),
            tie_word_embeddings=tie_word_embeddings,
            max_position_embeddings=_required_int(metadata, "llama.context_length"),
        )


def _refuse_huggingface_extras(config: Mapping[str, Any]) -> None:
    """Refuse settings of config.json that change the arithmetic in ways we don't compute."""
    harmless: dict[str, tuple[Any, ...]] = {
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "sliding_window": (),
        "quantization_config": (),
        "partial_rotary_factor": (1, 1.0),
    }
    for key, allowed in harmless.items():
        value = config.get(key)
        if value is not None and value not in allowed:
            expected = " or ".join(map(repr, allowed[:1])) or "none"
            raise UnsupportedModelError(
                f"config.json: {key} is {value!r}; this version supports only {expected}"
            )
    layer_types = config.get("layer_types")
    if layer_types is not None and set(layer_types) != {"full_attention"}:
        raise UnsupportedModelError(
            f"config.json: layer_types holds {sorted(set(layer_types))}; "
            "this version supports only full_attention"
        )


def _huggingface_rope_theta(config: Mapping[str, Any]) -> Any:
    """The rotary base: `rope_theta` (transformers 4) or in `rope_parameters` (transformers 5)."""
    theta = config.get("rope_theta", 10000.0)
    for key in ("rope_scaling", "rope_parameters"):
        parameters = config.get(key)
        if parameters is None:
            continue
        if not isinstance(parameters, Mapping):
            raise UnsupportedModelError(f"config.json: {key} is {parameters!r}; expected an object")
        kind = parameters.get("rope_type", parameters.get("type", "default"))
        if kind != "default":
            raise UnsupportedModelError(
                f"config.json: {key} asks for {kind!r}; this version supports no rope scaling"
            )
        if parameters.get("partial_rotary_factor", 1) != 1:
            raise UnsupportedModelError(
                f"config.json: {key} asks for partial_rotary_factor "
                f"{parameters['partial_rotary_factor']!r}; this version rotates whole heads only"
            )
        theta = parameters.get("rope_theta", theta)
    return theta


def _refuse_gguf_extras(metadata: Mapping[str, Any]) -> None:
    """Refuse GGUF metadata that changes the arithmetic in ways we don't compute."""
    harmless: dict[str, tuple[Any, ...]] = {
        "llama.rope.scaling.type": ("none",),
        "llama.rope.scale_linear": (0.0, 1.0),
        "llama.expert_count": (0,),
        "llama.attention.sliding_window": (0,),
    }
    for key, allowed in harmless.items():
        value = metadata.get(key)
        if value is not None and value not in allowed:
            raise UnsupportedModelError(
                f"{key} is {value!r}; this version supports only {allowed[0]!r}"
            )


def _required(data: Mapping[str, Any], key: str) -> Any:
    """The value under `key`, or an error naming it."""
    if data.get(key) is None:
        raise UnsupportedModelError(f"{key} is missing from the model's description")
    return data[key]


def _required_int(data: Mapping[str, Any], key: str) -> int:
    """The whole number under `key`, or an error naming it."""
    value = _required(data, key)
    if type(value) is not int or value < 1:
        raise UnsupportedModelError(f"{key} is {value!r}; expected a whole number > 0")
    return value


def _even_share(hidden: int, heads: int, hidden_key: str, heads_key: str) -> int:
    """The head size when the file doesn't give one."""
    if hidden % heads:
        raise UnsupportedModelError(f"{hidden_key} {hidden} is no multiple of {heads_key} {heads}")
    return hidden // heads


def _as_float(value: Any) -> Any:
    """JSON writes 10000.0 as 10000 at times; anything that is no number is left for the checks."""
    return float(value) if type(value) is int else value


def _shortest(value: Any) -> Any:
    """A float32 of the file as the shortest decimal that means it (9.99999975e-06 is 1e-05).

    So the same model has the same config from GGUF and from config.json.
    """
    return float(str(np.float32(value))) if isinstance(value, float) else value
