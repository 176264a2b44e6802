"""The adapter as a folder that `peft.PeftModel.from_pretrained` loads.

Format: PEFT's checkpoint guide (`adapter_config.json`, `adapter_model.safetensors` with keys
`base_model.model.<module>.lora_A.weight`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trainer.safetensors_file import SafetensorsFile, write_safetensors

if TYPE_CHECKING:  # it loads torch, which `trainer.export.gguf` does without
    from trainer.lora import LoraAdapter

CONFIG_FILE, TENSOR_FILE = "adapter_config.json", "adapter_model.safetensors"
BASE_HASH = "base_hash"
"""The base model's hash in the metadata of `TENSOR_FILE`."""

_README = """\
# A LoRA adapter made by lorad

Base model: {base_model}, {base_hash}
Rank {rank}, alpha {alpha:g}, targets {targets}{layers}.

Load it on the same base model:

    from peft import PeftModel
    model = PeftModel.from_pretrained(base, "this folder")

It was trained on this person's own examples and can reveal them: treat it as private.
"""


IMPORTED_CARD = """\
# A LoRA adapter imported into lorad

Base model: {base_model}, {base_hash}
Rank {rank}, alpha {alpha:g}, targets {targets}{layers}.

Its tensors are the imported ones, as fp32.
"""


@dataclass(frozen=True)
class PeftSettings:
    """What adapter_config.json says of an adapter."""

    rank: int
    alpha: float
    targets: Sequence[str]
    use_rslora: bool
    layers: range
    """Numbers of the layers that are adapted."""
    depth: int
    """How many layers the base model has."""

    def config(self, base_model: str) -> dict[str, Any]:
        """The JSON object."""
        config: dict[str, Any] = {
            "base_model_name_or_path": base_model,
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
            "init_lora_weights": True,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.0,
            "peft_type": "LORA",
            "r": self.rank,
            "target_modules": list(self.targets),
            "task_type": "CAUSAL_LM",
            "use_rslora": self.use_rslora,
        }
        if len(self.layers) < self.depth:
            config["layers_to_transform"] = list(self.layers)
        return config


def write_peft_folder(
    folder: Path, adapter: LoraAdapter, *, base_model: str, base_hash: str
) -> None:
    """Write configuration, tensors (fp32) and a model card into an existing folder."""
    settings = PeftSettings(
        adapter.rank,
        adapter.alpha,
        adapter.targets,
        adapter.use_rslora,
        adapter.layers,
        adapter.config.num_hidden_layers,
    )
    arrays = adapter.to_arrays()
    write_peft_files(folder, settings, arrays, base_model=base_model, base_hash=base_hash)


def write_peft_files(
    folder: Path,
    settings: PeftSettings,
    arrays: Mapping[str, npt.NDArray[np.float32]],
    *,
    base_model: str,
    base_hash: str,
    card: str = _README,
) -> None:
    """Write the files of an adapter with these settings and these tensors, by PEFT key.

    The base model's hash stands in the metadata of the tensors' file, where PEFT lets it be: an
    import finds it there.
    """
    config = settings.config(base_model)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    metadata = {"format": "pt", BASE_HASH: base_hash}
    write_safetensors(folder / TENSOR_FILE, arrays, metadata)
    some = f" of layers {settings.layers[0]} to {settings.layers[-1]}"
    words = card.format(
        base_model=base_model,
        base_hash=base_hash,
        rank=settings.rank,
        alpha=settings.alpha,
        targets=", ".join(settings.targets),
        layers=some if "layers_to_transform" in config else "",
    )
    (folder / "README.md").write_text(words, encoding="utf-8")


def load_peft_folder(folder: Path, adapter: LoraAdapter) -> None:
    """Load the tensors of a folder into an adapter of the same rank, targets and layers.

    Raises:
        ValueError: if a tensor is missing, too many or of another shape.
    """
    file = SafetensorsFile(folder / TENSOR_FILE)
    adapter.load_arrays({name: file.load(name) for name in file.names()})
