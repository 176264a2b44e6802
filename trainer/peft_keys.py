"""PEFT's names of a LoRA's tensors. Here, apart from the adapter, for what does without torch."""

import re

from trainer.models.layout import MODULES

_KEY = re.compile(r"base_model\.model\.model\.layers\.(\d{1,6})\.(\w+)\.(\w+)\.(lora_[AB])\.weight")


def peft_key(layer: int, target: str, part: str) -> str:
    """PEFT's name of one tensor; `part` is `lora_A` or `lora_B`."""
    return f"base_model.model.model.layers.{layer}.{MODULES[target]}.{target}.{part}.weight"


def parsed_peft_key(key: str) -> tuple[int, str, str] | None:
    """Layer, target and part of a name as `peft_key` gives; None for any other."""
    match = _KEY.fullmatch(key)
    if match is None or MODULES.get(match[3]) != match[2]:
        return None
    return int(match[1]), match[3], match[4]
