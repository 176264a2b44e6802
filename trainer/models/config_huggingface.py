"""A decoder's shape and rotary scaling out of a Hugging Face config.json.

Settings are read where transformers 4 and 5 write them, and defaults are those of transformers.
"""

import math
from collections.abc import Mapping
from typing import Any

from trainer.models.config import DecoderConfig, Family, UnsupportedModelError, check_family
from trainer.models.description import even_share, refuse_others, required_int
from trainer.models.rope_scaling import LinearScaling, Llama3Scaling, RopeScaling

_PLACE = "config.json: "
_DEFAULT_THETA = 10000.0
_DEFAULTS: Mapping[Family, Mapping[str, Any]] = {
    "llama": {},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
}
_ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "mlp_bias": (False,),
    "is_causal": (True,),
    "partial_rotary_factor": (1,),
    "quantization_config": (),
}
_ALLOWED_IN_FAMILY: Mapping[Family, Mapping[str, tuple[Any, ...]]] = {
    "llama": {"attention_bias": (False,), "sliding_window": ()},
    "qwen2": {},
    "qwen3": {"attention_bias": (False,)},
}
"""`attention_bias` is one of the o projection too, in these two; Qwen2's of q, k and v has no
setting."""


def config_from_huggingface(config: Mapping[str, Any]) -> DecoderConfig:
    """Read a config.json whose `model_type` is one of FAMILIES.

    Raises UnsupportedModelError naming the setting.
    """
    family = check_family(config.get("model_type"), _PLACE + "model_type")
    config = {**_DEFAULTS[family], **config}
    refuse_others(config, {**_ALLOWED, **_ALLOWED_IN_FAMILY[family]}, _PLACE)
    _refuse_sliding_windows(config)
    heads = required_int(config, "num_attention_heads")
    hidden = required_int(config, "hidden_size")
    head_dim = config.get("head_dim")
    if head_dim is None:
        head_dim = even_share(hidden, heads, _PLACE + "hidden_size", "num_attention_heads")
    key_value_heads = config.get("num_key_value_heads")
    return DecoderConfig(
        family=family,
        hidden_size=hidden,
        intermediate_size=required_int(config, "intermediate_size"),
        num_hidden_layers=required_int(config, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=heads if key_value_heads is None else key_value_heads,
        head_dim=head_dim,
        vocab_size=required_int(config, "vocab_size"),
        rms_norm_eps=_as_float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=_as_float(_rope_theta(config)),
        # transformers writes only what differs from its own default, which is untied
        tie_word_embeddings=config.get("tie_word_embeddings", False),
        max_position_embeddings=required_int(config, "max_position_embeddings"),
        attention_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        rope_scaled=rope_scaling_from_huggingface(config) is not None,
    )


def rope_scaling_from_huggingface(config: Mapping[str, Any]) -> RopeScaling | None:
    """How config.json stretches its rotary frequencies; None if it doesn't.

    Raises UnsupportedModelError naming the setting.
    """
    place, parameters = _rope_parameters(config)
    for name, value in parameters.items():
        if name == "mrope_section" or isinstance(value, Mapping):
            raise UnsupportedModelError(
                f"{place} has {name}; this version supports only one set of rotary frequencies"
            )
    refuse_others(parameters, {"partial_rotary_factor": (1,)}, f"{place}: ")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(_positive(parameters, "factor", place))
    if kind != "llama3":
        raise UnsupportedModelError(
            f"{place} asks for {kind!r}; this version supports only default, linear and llama3"
        )
    low = _positive(parameters, "low_freq_factor", place)
    high = _positive(parameters, "high_freq_factor", place)
    if high <= low:
        raise UnsupportedModelError(
            f"{place}: high_freq_factor is {high}; expected more than low_freq_factor, {low}"
        )
    context = "original_max_position_embeddings"
    found = config.get(context) or parameters.get(context) or config.get("max_position_embeddings")
    return Llama3Scaling(
        factor=_positive(parameters, "factor", place),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=required_int({f"{place}: {context}": found}, f"{place}: {context}"),
    )


def _rope_parameters(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The object with the rotary settings, and where it stands.

    It is `rope_scaling` in transformers 4, null without scaling, and `rope_parameters` in 5.
    """
    given = [key for key in ("rope_scaling", "rope_parameters") if config.get(key) is not None]
    for key in given:
        if not isinstance(config[key], Mapping):
            raise UnsupportedModelError(f"{_PLACE}{key} is {config[key]!r}; expected an object")
    if len(given) == 2 and config[given[0]] != config[given[1]]:
        raise UnsupportedModelError(
            f"{_PLACE}rope_scaling and rope_parameters differ; expected only one of them"
        )
    return (_PLACE + given[0], config[given[0]]) if given else (_PLACE + "rope_scaling", {})


def _rope_theta(config: Mapping[str, Any]) -> Any:
    """The rotary base: in `rope_parameters`, or at the top level."""
    _, parameters = _rope_parameters(config)
    theta = parameters.get("rope_theta", config.get("rope_theta"))
    return _DEFAULT_THETA if theta is None else theta


def _refuse_sliding_windows(config: Mapping[str, Any]) -> None:
    """Refuse layers that see only the latest tokens.

    Qwen's config.json always names a window and says elsewhere whether, and from which layer on, it
    is in force.
    """
    kinds = config.get("layer_types")
    if kinds is not None:
        if set(kinds) != {"full_attention"}:
            raise UnsupportedModelError(
                f"{_PLACE}layer_types holds {sorted(set(kinds))}; "
                "this version supports only full_attention"
            )
        return
    first = config.get("max_window_layers", 28)
    layers = required_int(config, "num_hidden_layers")
    window = config.get("sliding_window", 4096)
    if config.get("use_sliding_window") and window is not None and first < layers:
        raise UnsupportedModelError(
            f"{_PLACE}use_sliding_window is {config['use_sliding_window']!r}, and in force from "
            f"layer {first} of {layers} on (max_window_layers); this version supports no "
            "sliding windows"
        )


def _positive(parameters: Mapping[str, Any], key: str, place: str) -> float:
    """The finite number > 0 under `key`."""
    value = _as_float(parameters.get(key))
    if type(value) is not float or not 0 < value < math.inf:
        raise UnsupportedModelError(
            f"{place}: {key} is {parameters.get(key)!r}; expected a number > 0"
        )
    return value


def _as_float(value: Any) -> Any:
    """JSON writes 10000.0 as 10000 at times; anything that is no number is left for the checks."""
    return float(value) if type(value) is int else value
