"""PEFT's names of a LoRA's tensors. Here, apart from the adapter, for what does without torch."""

from trainer.models.layout import MODULES


def peft_key(layer: int, target: str, part: str) -> str:
    """PEFT's name of one tensor; `part` is `lora_A` or `lora_B`."""
    return f"base_model.model.model.layers.{layer}.{MODULES[target]}.{target}.{part}.weight"
