"""A frozen weight matrix: its codes, and what they mean in each format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu.quantize import CODE_STEP
from npu.quantize_blocks import dequantize_blocks
from npu.weight_layout import BLOCK_FORMATS, WeightFormat


@dataclass(frozen=True, eq=False)
class FrozenMatrix:
    """One weight W [N, K], stored once as codes in the order of W.

    fp16:     W = codes, float16 [N, K]; no scale.
    int8:     W[n, k] = codes[n, k] * 2**-7 * scale[n]; codes int8 [N, K], scale fp32 [N].
    int4:     W[n, k] = fp16(code * scale[n, k // 32]); codes uint8 [N, K / 2], two 4-bit codes of
              -8..7 a byte, scale fp16 [N, K / 32].
    int4_min: W[n, k] = fp16(fp16(code * scale) + offset[n, k // 32]); offset fp16 [N, K / 32].

    fp16(...) is a rounding to the nearest: the NPU's dequantizer computes in fp16, and every engine
    as it does.
    """

    name: str
    format: WeightFormat
    codes: npt.NDArray[Any]
    scale: npt.NDArray[Any] | None
    offset: npt.NDArray[np.float16] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K): output channels, input channels."""
        rows, columns = self.codes.shape
        return rows, columns * 2 if self.format in BLOCK_FORMATS else columns

    @property
    def bytes(self) -> int:
        """What it takes in the file and in memory: codes, scale and offset."""
        parts = (self.codes, self.scale, self.offset)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def host_scale(self) -> npt.NDArray[np.float32] | None:
        """The scale fp32 [N] that stays out of every engine's product; only int8 has one."""
        return self.scale if self.format == "int8" else None

    def take(self, index: slice | npt.NDArray[np.integer[Any]]) -> FrozenMatrix:
        """Some rows of W as a matrix of their own: a view for a slice, a copy for an index."""
        return FrozenMatrix(
            name=self.name,
            format=self.format,
            codes=self.codes[index],
            scale=None if self.scale is None else self.scale[index],
            offset=None if self.offset is None else self.offset[index],
        )

    def rows(self, index: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """Effective weights of some rows, fp32 [len(index), K]: the embedding lookup.

        Raises IndexError for an index outside 0..N-1.
        """
        if index.size and int(index.min()) < 0:
            raise IndexError(
                f"matrix '{self.name}': expected row indices of 0 or more, found "
                f"{int(index.min())}: check the token ids"
            )
        return self.take(index).dequantize()

    def dequantize(self) -> npt.NDArray[np.float32]:
        """Effective weights, fp32 [N, K]; a full copy."""
        if self.format in BLOCK_FORMATS:
            assert self.scale is not None
            return dequantize_blocks(self.codes, self.scale, self.offset).astype(np.float32)
        weights = self.codes.astype(np.float32)
        if self.scale is not None:
            weights *= np.float32(CODE_STEP)
            weights *= self.scale[:, None]
        return weights
