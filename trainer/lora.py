"""The LoRA adapter: the only trainable numbers.

    y = x Wᵀ + scale · (x lora_Aᵀ) lora_Bᵀ        lora_A [rank, in], lora_B [out, rank]

All of them lie in one flat vector, and their gradients in another like it, so that the optimizer
and the norm of the gradient are a few passes over one piece of memory. Within it the lora_A of
linears that share an input lie together and are one matrix:

    layer 0: │ A of q, k, v │ B of q │ B of k │ B of v │ A of o │ B of o │ A of gate, up │ …

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
from trainer.models.layout import LINEARS, PRODUCTS, linear_shape
from trainer.peft_keys import peft_key

TARGETS = LINEARS
"""Every linear that can be adapted, in the order of the computation."""


@dataclass(frozen=True)
class LinearLora:
    """The adapters of linears that share an input [M, K] and are one frozen product [M, N]."""

    A: torch.Tensor
    """All lora_A, one below the other: [ranks, K]."""
    A_gradient: torch.Tensor
    """Its gradient."""
    B: tuple[torch.Tensor, ...]
    """The lora_B of each, [columns, rank]."""
    B_gradients: tuple[torch.Tensor, ...]
    """Their gradients."""
    columns: tuple[slice, ...]
    """Where in N each one's outputs lie; outputs of linears without an adapter are in none."""
    scale: float

    def split(self, thin: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The parts of [ranks, M] that belong to each linear."""
        return thin.chunk(len(self.B))


@dataclass(frozen=True)
class _Place:
    """Where a matrix lies in the flat vector."""

    start: int
    shape: tuple[int, int]

    @property
    def end(self) -> int:
        return self.start + math.prod(self.shape)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        return flat[self.start : self.end].view(self.shape)


class LoraAdapter:
    """The adapter's tensors by layer and target, on the CPU."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        rank: int,
        alpha: float,
        targets: Sequence[str] = TARGETS,
        use_rslora: bool = False,
        seed: int = 0,
        layers: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """A fresh adapter, the same for the same seed.

        Args:
            config: the base model.
            rank: rows of each lora_A.
            alpha: what adds is scaled by alpha / rank, or alpha / √rank with `use_rslora`.
            targets: the linears to adapt.
            use_rslora: see `alpha`.
            seed: of lora_A.
            layers: how many layers, from the top, are adapted; None means all.
            dtype: float32 but for comparisons.

        Raises:
            ValueError: for a target or a number of layers this decoder doesn't have.
        """
        unknown = [target for target in targets if target not in TARGETS]
        if unknown:
            raise ValueError(f"expected targets out of {', '.join(TARGETS)}, found {unknown[0]!r}")
        depth = config.num_hidden_layers
        if layers is not None and not 1 <= layers <= depth:
            raise ValueError(f"expected 1 to {depth} layers to adapt, found {layers}")
        self.config = config
        self.rank = rank
        self.alpha = alpha
        self.use_rslora = use_rslora
        self.targets = tuple(target for target in TARGETS if target in targets)
        self.layers = range(0 if layers is None else depth - layers, depth)
        """Numbers of the layers that are adapted."""
        self.scale = alpha / (math.sqrt(rank) if use_rslora else rank)
        self._places: dict[tuple[int, str, str], _Place] = {}
        self._stacks: dict[tuple[int, str], _Place] = {}
        size = self._lay_out()
        self.flat = torch.zeros(size, dtype=dtype)
        """Every trainable number; the tensors below are views of it."""
        self.gradient = torch.zeros(size, dtype=dtype)
        """The gradient of `flat`, at the same places."""
        self._products = {
            (layer, product): self._linear_lora(layer, product) for layer, product in self._stacks
        }
        self._initialise(seed)

    def of_product(self, layer: int, product: str) -> LinearLora | None:
        """What the adapter adds to a product of `trainer.models.layout`; None if nothing."""
        return self._products.get((layer, product))

    def lora_A(self, layer: int, target: str) -> torch.Tensor:  # noqa: N802  (the matrix is A)
        """[rank, in] of one linear."""
        return self._places[layer, target, "lora_A"].of(self.flat)

    def lora_B(self, layer: int, target: str) -> torch.Tensor:  # noqa: N802  (the matrix is B)
        """[out, rank] of one linear."""
        return self._places[layer, target, "lora_B"].of(self.flat)

    def randomise(self, generator: torch.Generator, deviation: float) -> None:
        """lora_B normal around zero; for measuring, since at zero lora_A has no gradient."""
        for layer in self.layers:
            for target in self.targets:
                lora_B = self.lora_B(layer, target)
                lora_B.copy_(torch.randn(lora_B.shape, generator=generator) * deviation)

    def views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parts of a vector like `flat` under their PEFT keys, in a fixed order."""
        return {
            peft_key(layer, target, part): self._places[layer, target, part].of(flat)
            for layer in self.layers
            for target in self.targets
            for part in ("lora_A", "lora_B")
        }

    def named_parameters(self) -> dict[str, torch.Tensor]:
        """Every trainable tensor under its PEFT key, in a fixed order."""
        return self.views(self.flat)

    def named_gradients(self) -> dict[str, torch.Tensor]:
        """The gradient of each of `named_parameters`."""
        return self.views(self.gradient)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """A copy of all tensors as arrays under their PEFT keys."""
        return {key: value.numpy().copy() for key, value in self.named_parameters().items()}

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
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(arrays[key], np.float32)))

    def _lay_out(self) -> int:
        """Give every tensor its place; how many numbers there are."""
        end = 0
        for layer in self.layers:
            for product, linears in PRODUCTS.items():
                adapted = [linear for linear in linears if linear in self.targets]
                if not adapted:
                    continue
                inputs = linear_shape(self.config, adapted[0])[1]
                stack = _Place(end, (self.rank * len(adapted), inputs))
                self._stacks[layer, product] = stack
                for target in adapted:
                    place = self._places[layer, target, "lora_A"] = _Place(end, (self.rank, inputs))
                    end = place.end
                for target in adapted:
                    shape = (linear_shape(self.config, target)[0], self.rank)
                    place = self._places[layer, target, "lora_B"] = _Place(end, shape)
                    end = place.end
        return end

    def _linear_lora(self, layer: int, product: str) -> LinearLora:
        stack = self._stacks[layer, product]
        columns: list[slice] = []
        places: list[_Place] = []
        start = 0
        for linear in PRODUCTS[product]:
            end = start + linear_shape(self.config, linear)[0]
            if linear in self.targets:
                columns.append(slice(start, end))
                places.append(self._places[layer, linear, "lora_B"])
            start = end
        return LinearLora(
            stack.of(self.flat),
            stack.of(self.gradient),
            tuple(place.of(self.flat) for place in places),
            tuple(place.of(self.gradient) for place in places),
            tuple(columns),
            self.scale,
        )

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for layer in self.layers:
            for target in self.targets:
                lora_A = self.lora_A(layer, target)
                bound = 1.0 / math.sqrt(lora_A.shape[1])
                lora_A.copy_((torch.rand(lora_A.shape, generator=generator) * 2 - 1) * bound)
