"""Values of a model's own description (config.json, GGUF metadata), or an error naming the key."""

from collections.abc import Mapping
from typing import Any

from trainer.models.config import UnsupportedModelError


def required(data: Mapping[str, Any], key: str) -> Any:
    """The value under `key`; UnsupportedModelError if there is none."""
    if data.get(key) is None:
        raise UnsupportedModelError(f"{key} is missing from the model's description")
    return data[key]


def required_int(data: Mapping[str, Any], key: str) -> int:
    """The whole number > 0 under `key`, or UnsupportedModelError."""
    value = required(data, key)
    if type(value) is not int or value < 1:
        raise UnsupportedModelError(f"{key} is {value!r}; expected a whole number > 0")
    return value


def even_share(hidden: int, heads: int, hidden_key: str, heads_key: str) -> int:
    """The head size when the file doesn't give one; UnsupportedModelError if it isn't whole."""
    if hidden % heads:
        raise UnsupportedModelError(f"{hidden_key} {hidden} is no multiple of {heads_key} {heads}")
    return hidden // heads


def refuse_others(
    data: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]], place: str = ""
) -> None:
    """Refuse a setting of `data` that has a value beside None and the ones `allowed` lists."""
    for key, values in allowed.items():
        value = data.get(key)
        if value is not None and value not in values:
            expected = repr(values[0]) if values else "none"
            raise UnsupportedModelError(
                f"{place}{key} is {value!r}; this version supports only {expected}"
            )
