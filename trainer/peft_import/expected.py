"""What an adapter must be to become a version of one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.models.config import DecoderConfig
from trainer.models.layout import LINEARS, linear_shape
from trainer.peft_keys import peft_key

_HEADER_BYTES = 1 << 20


@dataclass(frozen=True)
class Expected:
    """The settings of our adapter, and its base model."""

    base_model: str
    base_hash: str
    config: DecoderConfig
    rank: int
    alpha: float
    targets: tuple[str, ...]
    use_rslora: bool
    top_layers: int | None

    @classmethod
    def of(cls, adapter: Mapping[str, Any], config: DecoderConfig) -> Expected:
        """From the adapter as the daemon describes it."""
        return cls(
            base_model=adapter["base_model"],
            base_hash=adapter["base_hash"],
            config=config,
            rank=adapter["rank"],
            alpha=float(adapter["alpha"]),
            targets=tuple(one for one in LINEARS if one in adapter["targets"]),
            use_rslora=adapter["use_rslora"],
            top_layers=adapter["top_layers"],
        )

    @property
    def layers(self) -> range:
        """Numbers of the layers that are adapted."""
        depth = self.config.num_hidden_layers
        return range(0 if self.top_layers is None else depth - self.top_layers, depth)

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Every tensor by its PEFT key: lora_A [rank, in] and lora_B [out, rank]."""
        shapes = {}
        for layer in self.layers:
            for target in self.targets:
                out, inputs = linear_shape(self.config, target)
                shapes[peft_key(layer, target, "lora_A")] = (self.rank, inputs)
                shapes[peft_key(layer, target, "lora_B")] = (out, self.rank)
        return shapes

    @property
    def most_bytes(self) -> int:
        """Of a safetensors file with these tensors."""
        shapes = self.shapes().values()
        numbers = sum(rows * columns for rows, columns in shapes)
        return 4 * numbers + 300 * len(shapes) + _HEADER_BYTES
