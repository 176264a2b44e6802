"""PEFT's adapter_config.json against our adapter: what it asks for beyond ours is refused by name.

Source: `peft.LoraConfig` (0.21) and PEFT's checkpoint guide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.export.peft import CONFIG_FILE
from trainer.peft_import.expected import Expected
from trainer.peft_import.refused import ImportRefusedError

_ANY = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",  # the tensors' names tell which layers there are
        "lora_dropout",  # we train without
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
        "target_modules",  # the tensors' names tell which linears there are
    }
)
"""What makes no difference, or shows elsewhere."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    # The others change the base model's weights too, or PEFT has converted them to these.
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),
}
_NOTHING: tuple[Any, ...] = (None, False, {}, [])


def read_settings(path: Path) -> dict[str, Any]:
    """The JSON object of an adapter_config.json.

    Raises:
        ImportRefusedError: it is none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ImportRefusedError(
            f"expected {CONFIG_FILE} to be a JSON object, found something else; save the adapter"
            " again with peft"
        )
    return value


def check_settings(settings: Mapping[str, Any], expected: Expected) -> None:
    """Refuse settings of another adapter than ours, and what we don't compute.

    Raises:
        ImportRefusedError: naming the setting, expected and found.
    """
    for name, allowed in _NEUTRAL.items():
        if name in settings and not _is_one_of(settings[name], allowed):
            words = " or ".join(json.dumps(one) for one in allowed if one is not None)
            raise _other(name, words, settings[name])
    ours: dict[str, Any] = {
        "r": expected.rank,
        "lora_alpha": expected.alpha,
        "use_rslora": expected.use_rslora,
    }
    for name, wanted in ours.items():
        found = settings.get(name, False if name == "use_rslora" else None)
        if isinstance(found, bool) != isinstance(wanted, bool) or found != wanted:
            raise ImportRefusedError(
                f"expected an adapter with {name} {json.dumps(wanted)}, found {_short(found)}; make"
                " an adapter with the same settings and import it there",
                conflict=True,
            )
    for name in sorted(settings.keys() - _ANY - _NEUTRAL.keys() - ours.keys()):
        if not _is_one_of(settings[name], _NOTHING):
            raise _other(name, "none", settings[name])


def _other(name: str, wanted: str, found: Any) -> ImportRefusedError:
    return ImportRefusedError(
        f"expected {name} of {CONFIG_FILE} to be {wanted}, found {_short(found)}; lorad computes a"
        " plain LoRA, so train one without it"
    )


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    return any(type(value) is type(one) and value == one for one in allowed)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"
