"""A few rows of a weight as fp32, in buffers that are used again: what sgemm reads.

4 bits, in passes over contiguous memory; the result is `FrozenMatrix.dequantize`, bit for bit:

    byte       high code · 16 + low code                       uint8  [rows, K / 2]
    word       16 · low code | 16 · high code, a byte each     int16  [rows, K / 2]
    codes      the same bytes, 16 · code in order of K         int8   [rows, K]
    product    fp32 of it · (scale / 16)                       exact: 4 bits times 11
    weight     fp16(product), fp16(… + offset), fp32 of it
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch

from npu.frozen_matrix import FrozenMatrix
from npu.quantize import CODE_STEP
from npu.weight_layout import BLOCK, BLOCK_FORMATS

TILE_ELEMENTS = 1 << 18
"""1 MiB of fp32, and half as much to fill it from 4 bits: they stay in the cache, while the dozen
calls for a tile take little of its time."""

assert sys.byteorder == "little", "a word's low byte must be the even column"


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """What a `FrozenMatrix` stores, as tensors over the same memory."""

    codes: torch.Tensor
    block_scale: torch.Tensor | None
    block_offset: torch.Tensor | None
    factors: torch.Tensor | None
    """fp32 [N] that turns products of int8 codes into those of the weights; None for others.

    2**-7 is exact, so one factor rounds as `code * 2**-7` then `* scale` does.
    """

    @classmethod
    def of(cls, matrix: FrozenMatrix) -> StoredWeight:
        """The tensors of `matrix`; nothing may write to them."""
        blocks = matrix.format in BLOCK_FORMATS
        return cls(
            codes=_tensor(matrix.codes),
            block_scale=_tensor(matrix.scale) if blocks and matrix.scale is not None else None,
            block_offset=None if matrix.offset is None else _tensor(matrix.offset),
            factors=None if matrix.host_scale is None else _tensor(matrix.host_scale) * CODE_STEP,
        )


@dataclass(frozen=True, eq=False)
class _Views:
    """One tile's buffers, seen as [rows, columns] or in blocks [rows, columns / BLOCK, BLOCK].

    `words`, `low` and `halves` share their memory: the codes are read before halves are written.
    """

    tile: torch.Tensor
    tile_blocks: torch.Tensor
    words: torch.Tensor
    low: torch.Tensor
    codes: torch.Tensor
    halves: torch.Tensor
    halves_blocks: torch.Tensor
    scale: torch.Tensor


class Fp32Tile:
    """One tile; what is in it is valid until it is filled again."""

    def __init__(self) -> None:
        """No memory yet."""
        self._weights = torch.empty(0)
        self._words = torch.empty(0, dtype=torch.int16)
        self._views: dict[tuple[int, int], _Views] = {}

    def fill(self, weight: StoredWeight, rows: slice, columns: slice) -> torch.Tensor:
        """fp32 [rows, columns] of the weight; of int8 the bare codes.

        Columns of a 4-bit weight begin and end with a block.
        """
        if weight.block_scale is not None:
            return self._fill_from_blocks(weight, weight.block_scale, rows, columns)
        codes = weight.codes[rows, columns]
        size = codes.numel()
        if self._weights.numel() < size:
            self._weights, self._views = torch.empty(size), {}
        return self._weights[:size].view(codes.shape).copy_(codes)

    def _fill_from_blocks(
        self, weight: StoredWeight, scale: torch.Tensor, rows: slice, columns: slice
    ) -> torch.Tensor:
        blocks = rows, slice(columns.start // BLOCK, columns.stop // BLOCK)
        to = self._block_views(rows.stop - rows.start, columns.stop - columns.start)
        to.words.copy_(weight.codes[rows, columns.start // 2 : columns.stop // 2])
        torch.bitwise_and(to.words, 0x0F, out=to.low)
        to.words.mul_(256).add_(to.low, alpha=16 - 256)
        to.tile.copy_(to.codes)
        to.scale.copy_(scale[blocks].unsqueeze(2)).mul_(1 / 16)
        to.tile_blocks.mul_(to.scale)
        to.halves.copy_(to.tile)
        if weight.block_offset is not None:
            to.halves_blocks.add_(weight.block_offset[blocks].unsqueeze(2))
        return to.tile.copy_(to.halves)

    def _block_views(self, rows: int, columns: int) -> _Views:
        known = self._views.get((rows, columns))
        if known is not None:
            return known
        size = rows * columns
        if self._weights.numel() < size:
            self._weights, self._views = torch.empty(size), {}
        if self._words.numel() < size:
            self._words, self._views = torch.empty(size, dtype=torch.int16), {}
        in_blocks = (rows, columns // BLOCK, BLOCK)
        tile = self._weights[:size].view(rows, columns)
        words, low = self._words[:size].view(2, rows, columns // 2)
        halves = self._words[:size].view(torch.float16).view(rows, columns)
        views = self._views[rows, columns] = _Views(
            tile=tile,
            tile_blocks=tile.view(in_blocks),
            words=words,
            low=low,
            codes=words.view(torch.int8),
            halves=halves,
            halves_blocks=halves.view(in_blocks),
            scale=torch.empty(rows, columns // BLOCK, 1),
        )
        return views


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    with warnings.catch_warnings():
        # torch warns that writing to it would be undefined; nothing here writes to a weight.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
