"""The engine of a calibration: fp32 products, some of them with another weight in one direction.

    swapped({"layers.3.mlp.down_proj": W'}, {"forward"})

    forward    0 ··· 3.gate_up   3.down     4 ··· head      backward   head ··· 0
               as recorded       with W'    computed                   computed with W

A pass equals the recorded one up to its first swapped product, so the products before that aren't
computed again but taken from the record; their operands are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import torch

from npu.engine_options import EngineOptions
from npu.engines.torch_cpu import TorchCpuEngine
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction


class SwapEngine(TorchCpuEngine):
    """`torch_cpu` over fp32 values; see the module. For one pass over one batch at a time."""

    def __init__(self, matrices: Mapping[str, FrozenMatrix], options: EngineOptions) -> None:
        """An engine over `matrices`, whose codes are fp32 [N, K]."""
        super().__init__(matrices, options)
        self._record: dict[tuple[Direction, str], torch.Tensor] = {}
        self._recording = False
        self._swaps: Mapping[str, FrozenMatrix] = {}
        self._directions: Collection[Direction] = ()
        self._same_so_far = False

    @property
    def recorded(self) -> Collection[tuple[Direction, str]]:
        """The products that the recorded pass computed."""
        return self._record.keys()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Keep the products of the one pass inside; each matrix is used once a direction."""
        self._record.clear()
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    @contextmanager
    def swapped(
        self,
        matrices: Mapping[str, FrozenMatrix],
        directions: Collection[Direction],
        *,
        reuse: bool,
    ) -> Iterator[None]:
        """Compute the one pass inside with `matrices` in `directions`, in any of their formats.

        `reuse` says that it begins with the operands the recorded one began with.
        """
        self._swaps, self._directions = matrices, directions
        self._same_so_far = reuse
        try:
            yield
        finally:
            self._swaps, self._directions = {}, ()
            self._same_so_far = False

    def compute(self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        """The product of fp32 `a` with `matrix` or what it is swapped for; see Engine.compute."""
        if direction in self._directions and matrix.name in self._swaps:
            self._same_so_far = False
            return super().compute(self._swaps[matrix.name], direction, a)
        if self._same_so_far:
            return self._record[direction, matrix.name].clone()
        W = torch.from_numpy(matrix.codes)
        result = a @ (W.t() if direction == "forward" else W)
        if self._recording:
            # A copy: whoever gets a product adds the adapter's part to it.
            self._record[direction, matrix.name] = result.clone()
        return result
