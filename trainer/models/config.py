"""The shape of a decoder: one dataclass, whatever file described the model.

`config_huggingface.py` and `config_gguf.py` read it. What the trainer doesn't compute is refused
there by the name the file gives it: a model that loaded with such a setting ignored would train on
wrong activations without any sign of it.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

Family = Literal["llama", "qwen2", "qwen3"]
FAMILIES: tuple[Family, ...] = get_args(Family)
"""The names that config.json (`model_type`) and GGUF (`general.architecture`) both use."""

_LATER_FIELDS = ("attention_bias", "qk_norm", "rope_scaled")
"""Written only where true: without them a model's file is the one that earlier versions wrote."""


class UnsupportedModelError(ValueError):
    """A base model needs something this version doesn't compute, or its description is broken."""


@dataclass(frozen=True)
class DecoderConfig:
    """Everything a decoder's arithmetic depends on besides its weights.

    `head_dim` may differ from `hidden_size / num_attention_heads`; `tie_word_embeddings` means that
    the output head is `embed_tokens`. `attention_bias`: the q, k and v projections add a bias
    (Qwen2). `qk_norm`: queries and keys are normalised head by head before they are rotated
    (Qwen3). `rope_scaled`: the rotary frequencies aren't those of `rope_theta` alone but the
    file's vector `rope_inverse_frequencies` (Llama 3.1 and later).

    Raises UnsupportedModelError naming the field.
    """

    family: Family
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
    attention_bias: bool = False
    qk_norm: bool = False
    rope_scaled: bool = False

    def __post_init__(self) -> None:
        """Check every field's type and range, and what must divide what."""
        if self.family not in FAMILIES:
            raise UnsupportedModelError(
                f"architecture is {self.family!r}; this version trains only {', '.join(FAMILIES)}"
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
        return {
            name: value
            for name, value in asdict(self).items()
            if value or name not in _LATER_FIELDS
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "DecoderConfig":
        """Read what `to_json` of this or an earlier version wrote.

        An unknown or missing field is refused by name.
        """
        expected = {field.name for field in fields(cls)}
        for name in sorted(expected - data.keys() - set(_LATER_FIELDS)):
            raise UnsupportedModelError(
                f"the model's stored config lacks {name}; add the model again"
            )
        for name in sorted(data.keys() - expected):
            raise UnsupportedModelError(
                f"the model's stored config has {name}, which this version doesn't know; "
                "update lorad or add the model again"
            )
        return cls(**data)


def check_family(found: Any, key: str) -> Family:
    """`found` if it is a family of FAMILIES; UnsupportedModelError naming `key` if not."""
    for family in FAMILIES:
        if found == family:
            return family
    raise UnsupportedModelError(
        f"{key} is {found!r}; this version trains only {', '.join(FAMILIES)}"
    )
