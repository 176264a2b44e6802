"""The products on the CPU with torch: codes become a fp32 tile, the tile goes through sgemm.

The fallback of every other engine, and the fastest one on an ordinary CPU. fp32 throughout, so
rows need no protection. Nothing checks its results: one that overflows fp32 is not finite and is
refused as the input of the next product.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy.typing as npt
import torch

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.quantize import CODE_STEP
from npu.weight_layout import BLOCK, BLOCK_FORMATS

_TILE_ELEMENTS = 1 << 20
"""4 MiB of fp32: the tile and its share of the operands stay in the cache."""


class TorchCpuEngine(Engine):
    """y and dx by sgemm over one fp32 tile of weight rows at a time, in a buffer used again."""

    name: ClassVar[EngineName] = "torch_cpu"
    own_thread: ClassVar[bool] = False
    form = "codes"

    def __init__(self, matrices: Mapping[str, FrozenMatrix], options: EngineOptions) -> None:
        """An engine over `matrices`; torch's own thread count is what computes."""
        super().__init__(matrices, options)
        self._buffer = torch.empty(0)

    @property
    def device(self) -> str:
        """Always the CPU."""
        return "cpu"

    def compute(self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        """The product of fp32 `a` with `matrix`; see Engine.compute."""
        if direction == "forward":
            return self._forward(matrix, a)
        return self._input_gradient(matrix, a)

    def close(self) -> None:
        """Also let go of the tile."""
        super().close()
        self._buffer = torch.empty(0)

    def _forward(self, matrix: FrozenMatrix, x: torch.Tensor) -> torch.Tensor:
        y = x.new_empty(x.shape[0], matrix.shape[0])
        factors = _row_factors(matrix)
        for rows, tile in self._tiles(matrix):
            part = y[:, rows]
            torch.mm(x, tile.t(), out=part)
            if factors is not None:
                part.mul_(factors[rows])
        return y

    def _input_gradient(self, matrix: FrozenMatrix, dy: torch.Tensor) -> torch.Tensor:
        dx = dy.new_zeros(dy.shape[0], matrix.shape[1])
        factors = _row_factors(matrix)
        for rows, tile in self._tiles(matrix):
            part = dy[:, rows]
            dx.addmm_(part if factors is None else part * factors[rows], tile)
        return dx

    def _tiles(self, matrix: FrozenMatrix) -> Iterator[tuple[slice, torch.Tensor]]:
        """Pieces of the weight as fp32 [rows, K]; each is valid until the next is taken.

        Of int8 the bare codes, whose scale is applied to the products.
        """
        total, columns = matrix.shape
        rows_at_a_time = min(total, max(1, _TILE_ELEMENTS // columns))
        if self._buffer.numel() < rows_at_a_time * columns:
            self._buffer = torch.empty(rows_at_a_time * columns)
        for start in range(0, total, rows_at_a_time):
            rows = slice(start, min(start + rows_at_a_time, total))
            count = rows.stop - rows.start
            tile = self._buffer[: count * columns].view(count, columns)
            if matrix.format in BLOCK_FORMATS:
                _dequantize_blocks(matrix.take(rows), tile)
            else:
                tile.copy_(_read_only_tensor(matrix.codes[rows]))
            yield rows, tile


def _dequantize_blocks(matrix: FrozenMatrix, tile: torch.Tensor) -> None:
    """`FrozenMatrix.dequantize` of a 4-bit matrix, bit for bit, into `tile` fp32 [N, K]."""
    assert matrix.scale is not None
    codes = _read_only_tensor(matrix.codes).bitwise_xor(0x88)  # nibbles of 0..15
    pairs = tile.view(*codes.shape, 2)
    pairs[:, :, 0].copy_(codes & 0x0F)
    pairs[:, :, 1].copy_(codes >> 4)
    blocks = tile.view(len(tile), -1, BLOCK)
    scale = _read_only_tensor(matrix.scale).float().unsqueeze(2)
    blocks.sub_(8.0).mul_(scale)
    blocks.copy_(blocks.half())
    if matrix.offset is not None:
        blocks.add_(_read_only_tensor(matrix.offset).float().unsqueeze(2))
        blocks.copy_(blocks.half())


def _row_factors(matrix: FrozenMatrix) -> torch.Tensor | None:
    """fp32 [N] that turns products of int8 codes into those of the weights; None for others.

    2**-7 is exact, so one factor rounds as `code * 2**-7` then `* scale` does.
    """
    if matrix.host_scale is None:
        return None
    return _read_only_tensor(matrix.host_scale) * CODE_STEP


def _read_only_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    with warnings.catch_warnings():
        # torch warns that writing to it would be undefined; nothing here writes to a weight.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
