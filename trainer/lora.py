"""The LoRA adapter: the only trainable numbers.

    y = x Wᵀ + scale · (x lora_Aᵀ) lora_Bᵀ        lora_A [rank, in], lora_B [out, rank]

Source: Hu et al. (arXiv 2106.09685) section 4.1; rsLoRA's scale: Kalajdzievski (arXiv 2312.03732).
Initialisation and key names are PEFT's: `lora_A` Kaiming uniform with a = √5, `lora_B` zero, so
that a fresh adapter changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from trainer.models.config import DecoderConfig
from trainer.models.layout import LINEARS, MODULES, linear_shape

TARGETS = LINEARS
"""Every linear that can be adapted, in the order of the computation."""


def peft_key(layer: int, target: str, part: str) -> str:
    """PEFT's name of one tensor; `part` is `lora_A` or `lora_B`."""
    return f"base_model.model.model.layers.{layer}.{MODULES[target]}.{target}.{part}.weight"


class LoraAdapter:
    """The adapter's tensors by layer and target, all fp32 on the CPU."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        rank: int,
        alpha: float,
        targets: Sequence[str] = TARGETS,
        use_rslora: bool = False,
        seed: int = 0,
    ) -> None:
        """A fresh adapter, the same for the same seed.

        Raises:
            ValueError: for a target this decoder doesn't have.
        """
        unknown = [target for target in targets if target not in TARGETS]
        if unknown:
            raise ValueError(f"expected targets out of {', '.join(TARGETS)}, found {unknown[0]!r}")
        self.config = config
        self.rank = rank
        self.alpha = alpha
        self.use_rslora = use_rslora
        self.targets = tuple(target for target in TARGETS if target in targets)
        self.scale = alpha / (math.sqrt(rank) if use_rslora else rank)
        self.lora_A: dict[tuple[int, str], torch.nn.Parameter] = {}
        self.lora_B: dict[tuple[int, str], torch.nn.Parameter] = {}
        generator = torch.Generator().manual_seed(seed)
        for layer in range(config.num_hidden_layers):
            for target in self.targets:
                n_out, n_in = linear_shape(config, target)
                bound = 1.0 / math.sqrt(n_in)
                lora_A = (torch.rand(rank, n_in, generator=generator) * 2 - 1) * bound
                self.lora_A[layer, target] = torch.nn.Parameter(lora_A)
                self.lora_B[layer, target] = torch.nn.Parameter(torch.zeros(n_out, rank))

    def add_to(
        self, layer: int, targets: Sequence[str], x: torch.Tensor, outputs: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """The outputs of linears that share the input `x`, each with what the adapter adds.

        Their lora_A are multiplied as one matrix: one thin product instead of one a linear.

        Args:
            layer: number of the layer.
            targets: names of the linears.
            x: [T, in].
            outputs: their frozen outputs [T, out]; those that aren't adapted come back as they are.
        """
        adapted = [target for target in targets if (layer, target) in self.lora_A]
        if not adapted:
            return list(outputs)
        thin = x @ torch.cat([self.lora_A[layer, target] for target in adapted]).t()
        parts = dict(zip(adapted, thin.split(self.rank, dim=1), strict=True))
        return [
            torch.addmm(y, parts[target], self.lora_B[layer, target].t(), alpha=self.scale)
            if target in parts
            else y
            for target, y in zip(targets, outputs, strict=True)
        ]

    def layer_parameters(self, layer: int) -> list[torch.nn.Parameter]:
        """The trainable tensors of one layer, in a fixed order."""
        pairs = ((self.lora_A[layer, name], self.lora_B[layer, name]) for name in self.targets)
        return [tensor for pair in pairs for tensor in pair]

    def named_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Every trainable tensor under its PEFT key, in a fixed order."""
        named = {}
        for layer, target in self.lora_A:
            named[peft_key(layer, target, "lora_A")] = self.lora_A[layer, target]
            named[peft_key(layer, target, "lora_B")] = self.lora_B[layer, target]
        return named

    def to_arrays(self) -> dict[str, np.ndarray]:
        """A copy of all tensors as fp32 arrays under their PEFT keys."""
        return {
            key: value.detach().numpy().copy() for key, value in self.named_parameters().items()
        }

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over the values of `to_arrays`.

        Raises:
            ValueError: if a tensor is missing, too many or of another shape; it names the tensor.
        """
        own = self.named_parameters()
        for key in own.keys() ^ arrays.keys():
            where = "is missing" if key in own else "is not a tensor of this adapter"
            raise ValueError(
                f"expected the tensors of a rank-{self.rank} adapter, but {key} {where}"
            )
        for key, parameter in own.items():
            if arrays[key].shape != tuple(parameter.shape):
                raise ValueError(
                    f"expected {key} of shape {tuple(parameter.shape)}, found {arrays[key].shape}"
                )
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(arrays[key], np.float32)))
