"""The products on the CPU with torch: codes become a fp32 tile, the tile goes through sgemm.

Every thread computes whole columns of the result: from rows of W forwards, from columns of W
backwards. No sum is shared, and what a thread has as fp32 is one tile of its part of W.

                     K                                 K
                 ┌───────┐                         ┌───┬───┐
      thread 1   │   W   │                         │   │   │
                 ├───────┤  N                    N │ W │ W │
      thread 2   │   W   │                         │   │   │
                 └───────┘                         └───┴───┘
                                            thread   1   2
                y = x Wᵀ                        dx = dy W

A sum over K is taken by one sgemm; a sum over N is one sgemm's within a tile, added to that of the
tiles above. So the same shapes and threads give the same bits, on the same BLAS.

Turning 4-bit codes to fp32 takes as long as some forty rows of a product. Where memory is plenty,
`keep_decoded` keeps weights as fp16, which holds them exactly: the same bits, sooner.

The fallback of every other engine, and the fastest one on an ordinary CPU. fp32 throughout, so
rows need no protection. Nothing checks its results: one that overflows fp32 is not finite and is
refused as the input of the next product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch

from npu.engine import Engine, EngineName
from npu.engine_options import EngineOptions
from npu.engines.fp32_tile import TILE_ELEMENTS, Fp32Tile, StoredWeight
from npu.engines.one_thread_each import OneThreadEach
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.weight_layout import BLOCK, BLOCK_FORMATS

_HALF = 2
"""Bytes of a weight as fp16."""

_FEWEST_WEIGHTS_TO_SHARE = 1 << 15
"""A product of a smaller matrix takes no longer than handing a part of it to another thread."""


class TorchCpuEngine(Engine):
    """y and dx by sgemm over a fp32 tile at a time, in each of `options.threads` threads."""

    name: ClassVar[EngineName] = "torch_cpu"
    own_thread: ClassVar[bool] = False
    form = "codes"

    def __init__(self, matrices: Mapping[str, FrozenMatrix], options: EngineOptions) -> None:
        """An engine over `matrices`."""
        super().__init__(matrices, options)
        self._threads = OneThreadEach(f"lorad-{self.name}")
        self._tiles = [Fp32Tile() for _ in range(options.threads)]
        self._weights: WeakKeyDictionary[FrozenMatrix, StoredWeight] = WeakKeyDictionary()
        self._places: dict[FrozenMatrix, torch.Tensor] = {}

    @property
    def device(self) -> str:
        """Always the CPU."""
        return "cpu"

    @property
    def decodable_bytes(self) -> int:
        """Of all 4-bit weights as fp16; see Engine.decodable_bytes."""
        return sum(_HALF * math.prod(matrix.shape) for matrix in self._in_blocks())

    def keep_decoded(self, most_bytes: int) -> None:
        """Keep 4-bit weights as fp16, matrix by matrix while they fit; see Engine.keep_decoded."""
        kept: list[FrozenMatrix] = []
        room = most_bytes
        for matrix in self._in_blocks():
            room -= _HALF * math.prod(matrix.shape)
            if room < 0:
                break
            kept.append(matrix)
        sizes = [math.prod(matrix.shape) for matrix in kept]
        places = torch.empty(sum(sizes), dtype=torch.float16).split(sizes)
        self._places = {
            matrix: place.view(matrix.shape) for matrix, place in zip(kept, places, strict=True)
        }
        self._weights.clear()

    def compute(self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        """The product of fp32 `a` with `matrix`; see Engine.compute."""
        weight = self._weights.get(matrix)
        if weight is None:
            weight = self._weights[matrix] = self._stored(matrix)
        N, K = matrix.shape
        threads = len(self._tiles) if N * K >= _FEWEST_WEIGHTS_TO_SHARE else 1
        width, product = (N, _forward) if direction == "forward" else (K, _input_gradient)
        result = a.new_empty(a.shape[0], width)
        self._threads.run(
            [
                partial(product, weight, a, result[:, share], share, tile)
                for share, tile in zip(_shares(width, threads), self._tiles, strict=False)
            ]
        )
        return result

    def close(self) -> None:
        """Also end the threads and let go of the tiles."""
        super().close()
        self._threads.close()
        self._tiles = [Fp32Tile() for _ in self._tiles]
        self._weights.clear()
        self._places = {}

    def _in_blocks(self) -> Iterator[FrozenMatrix]:
        return (matrix for matrix in self.matrices.values() if matrix.format in BLOCK_FORMATS)

    def _stored(self, matrix: FrozenMatrix) -> StoredWeight:
        """What products read: the codes, or, where there is a place for them, fp16 weights."""
        weight, place = StoredWeight.of(matrix), self._places.get(matrix)
        if place is None:
            return weight
        N, K = matrix.shape
        for rows in _tile_rows(slice(0, N), K):
            place[rows].copy_(self._tiles[0].fill(weight, rows, slice(0, K)))
        return StoredWeight(place, None, None, None)


def _forward(
    weight: StoredWeight, x: torch.Tensor, y: torch.Tensor, share: slice, tile: Fp32Tile
) -> None:
    """Write the columns `share` of x W^T, [M, share], to `y`."""
    columns = slice(0, x.shape[1])
    for rows in _tile_rows(share, x.shape[1]):
        part = y[:, rows.start - share.start : rows.stop - share.start]
        torch.mm(x, tile.fill(weight, rows, columns).t(), out=part)
        if weight.factors is not None:
            part.mul_(weight.factors[rows])


def _input_gradient(
    weight: StoredWeight, dy: torch.Tensor, dx: torch.Tensor, share: slice, tile: Fp32Tile
) -> None:
    """Write the columns `share` of dy W, [M, share], to `dx`."""
    for rows in _tile_rows(slice(0, dy.shape[1]), share.stop - share.start):
        part = dy[:, rows]
        if weight.factors is not None:
            part = part * weight.factors[rows]
        dx.addmm_(part, tile.fill(weight, rows, share), beta=0 if rows.start == 0 else 1)


def _shares(width: int, most: int) -> list[slice]:
    """0..`width` in at most `most` pieces that are whole blocks, as equal as those can be."""
    blocks = -(-width // BLOCK)
    count = min(most, blocks)
    ends = [min(width, BLOCK * (blocks * (i + 1) // count)) for i in range(count)]
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _tile_rows(rows: slice, columns: int) -> Iterator[slice]:
    """`rows` of a weight in pieces that fit a tile, as equal as can be."""
    total = rows.stop - rows.start
    pieces = -(-total // max(1, TILE_ELEMENTS // columns))
    step = -(-total // pieces)
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))
