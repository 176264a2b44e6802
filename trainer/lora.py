"""The LoRA adapter: the only trainable numbers.

    y = x Wᵀ + scale · (x lora_Aᵀ) lora_Bᵀ        lora_A [rank, in], lora_B [out, rank]

Source: Hu et al. (arXiv 2106.09685) section 4.1; rsLoRA's scale: Kalajdzievski (arXiv 2312.03732).
Initialisation and key names are PEFT's: `lora_A` Kaiming uniform with a = √5, `lora_B` zero, so
that a fresh adapter changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from trainer.models.config import DecoderConfig
from trainer.models.layout import LINEARS, MODULES, linear_shape

TARGETS = LINEARS
"""Every linear that can be adapted, in the order of the computation."""


def peft_key(layer: int, target: str, part: str) -> str:
    """PEFT's name of one tensor; `part` is `lora_A` or `lora_B`."""
    return f"base_model.model.model.layers.{layer}.{MODULES[target]}.{target}.{part}.weight"


@dataclass(frozen=True)
class LinearLora:
    """The adapters of linears that share an input [M, K] and are one frozen product [M, N]."""

    A: tuple[torch.Tensor, ...]
    """The lora_A of each, [rank, K]."""
    B: tuple[torch.Tensor, ...]
    """The lora_B of each, [columns, rank]."""
    columns: tuple[slice, ...]
    """Where in N each one's outputs lie; outputs of linears without an adapter are in none."""
    scale: float

    def stacked_A(self) -> torch.Tensor:  # noqa: N802  (the matrix is called A)
        """All lora_A as one matrix [ranks, K]: one thin product instead of one a linear."""
        return self.A[0] if len(self.A) == 1 else torch.cat(self.A)

    def split(self, stacked: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
        """The parts of `stacked` that belong to each lora_A, along `dim`."""
        return torch.split(stacked, [len(lora_A) for lora_A in self.A], dim)


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

    def of_linears(self, layer: int, targets: Sequence[str]) -> LinearLora | None:
        """What the adapter adds to linears that share an input; None if it adds nothing.

        Args:
            layer: number of the layer.
            targets: names of the linears, in the order of their outputs.
        """
        adapted: list[str] = []
        columns: list[slice] = []
        start = 0
        for target in targets:
            end = start + linear_shape(self.config, target)[0]
            if target in self.targets:
                adapted.append(target)
                columns.append(slice(start, end))
            start = end
        if not adapted:
            return None
        return LinearLora(
            tuple(self.lora_A[layer, target] for target in adapted),
            tuple(self.lora_B[layer, target] for target in adapted),
            tuple(columns),
            self.scale,
        )

    @torch.no_grad()
    def randomise(self, generator: torch.Generator, deviation: float) -> None:
        """Normal around zero; for measuring, since at zero every gradient of lora_A is zero."""
        for lora_B in self.lora_B.values():
            lora_B.copy_(torch.randn(lora_B.shape, generator=generator) * deviation)

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
