"""The adapter as a folder that `peft.PeftModel.from_pretrained` loads.

Format: PEFT's checkpoint guide (`adapter_config.json`, `adapter_model.safetensors` with keys
`base_model.model.<module>.lora_A.weight`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.safetensors_file import SafetensorsFile, write_safetensors

if TYPE_CHECKING:  # it loads torch, which `trainer.export.gguf` does without
    from trainer.lora import LoraAdapter

CONFIG_FILE, TENSOR_FILE = "adapter_config.json", "adapter_model.safetensors"

_README = """\
# A LoRA adapter made by lorad

Base model: {base_model}, {base_hash}
Rank {rank}, alpha {alpha:g}, targets {targets}{layers}.

Load it on the same base model:

    from peft import PeftModel
    model = PeftModel.from_pretrained(base, "this folder")

It was trained on this person's own examples and can reveal them: treat it as private.
"""


def write_peft_folder(
    folder: Path, adapter: LoraAdapter, *, base_model: str, base_hash: str
) -> None:
    """Write configuration, tensors (fp32) and a model card into an existing folder."""
    config: dict[str, Any] = {
        "base_model_name_or_path": base_model,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": adapter.rank,
        "target_modules": list(adapter.targets),
        "task_type": "CAUSAL_LM",
        "use_rslora": adapter.use_rslora,
    }
    layers = list(adapter.layers)
    if len(layers) < adapter.config.num_hidden_layers:
        config["layers_to_transform"] = layers
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    write_safetensors(folder / TENSOR_FILE, adapter.to_arrays(), {"format": "pt"})
    card = _README.format(
        base_model=base_model,
        base_hash=base_hash,
        rank=adapter.rank,
        alpha=adapter.alpha,
        targets=", ".join(adapter.targets),
        layers=f" of layers {layers[0]} to {layers[-1]}" if "layers_to_transform" in config else "",
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def load_peft_folder(folder: Path, adapter: LoraAdapter) -> None:
    """Load the tensors of a folder into an adapter of the same rank, targets and layers.

    Raises:
        ValueError: if a tensor is missing, too many or of another shape.
    """
    file = SafetensorsFile(folder / TENSOR_FILE)
    adapter.load_arrays({name: file.load(name) for name in file.names()})
