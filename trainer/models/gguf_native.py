"""GGUF's 4-bit tensors as ours: every code and scale is kept, only packed in another order.

    GGUF                                    ours (npu/quantize_blocks.py)
    byte j of a block: values j, j + 16     byte j: values 2 j, 2 j + 1
    nibble 0..15, value d (nibble - 8)      code = nibble - 8, scale = d                 Q4_0, int4
    nibble 0..15, value d nibble + m        code = nibble - 8, scale = d,
                                            offset = fp16(m + 8 d)                   Q4_1, int4_min

What the two mean differs by fp16 roundings alone: of the product, of the offset and of the sum.
With u = 2**-11 (half an ulp, relative) and h = 2**-25 (half the smallest fp16) it is at most

    Q4_0   u |d code| + h
    Q4_1   (1 + u) (u (|d code| + |m + 8 d| + |d nibble + m|) + 3 h)
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from npu.quantize import Quantized
from npu.quantize_blocks import centre
from npu.weight_layout import BLOCK, WeightFormat
from trainer.models.gguf_blocks import BLOCKS, Q4_0, Q4_1, TYPE_NAMES

NATIVE: Mapping[int, WeightFormat] = {Q4_0: "int4", Q4_1: "int4_min"}
"""ggml's types that are kept, and our format for each."""

_HALF_BLOCK = BLOCK // 2
_FLIP_BOTH_HIGH_BITS = np.uint8(0x88)
"""nibble - 8 in two's complement is the nibble with its high bit flipped."""


def repack(data: npt.NDArray[np.uint8], kind: int, N: int, K: int) -> Quantized:
    """Raw bytes of a Q4_0 or Q4_1 tensor [N, K] as codes uint8 [N, K / 2], scale and offset.

    Raises ValueError where a block's effective weights would not be finite fp16 numbers.
    """
    blocks = data.reshape(N, K // BLOCK, BLOCKS[kind][1])
    scale = _halves(blocks, 0)
    offset = None
    if kind == Q4_1:
        with np.errstate(invalid="ignore", over="ignore"):
            offset = centre(_halves(blocks, 2), scale)
    _check_finite(scale, offset, kind)
    nibbles = blocks[:, :, -_HALF_BLOCK:]
    codes = np.empty((N, K // BLOCK, _HALF_BLOCK), np.uint8)
    half = _HALF_BLOCK // 2
    codes[:, :, :half] = (nibbles[:, :, 0::2] & 0x0F) | (nibbles[:, :, 1::2] << 4)
    codes[:, :, half:] = (nibbles[:, :, 0::2] >> 4) | (nibbles[:, :, 1::2] & 0xF0)
    codes ^= _FLIP_BOTH_HIGH_BITS
    return Quantized(codes.reshape(N, K // 2), scale, offset)


def _halves(blocks: npt.NDArray[np.uint8], at: int) -> npt.NDArray[np.float16]:
    """The fp16 number at byte `at` of each block [N, K / 32, size]: [N, K / 32]."""
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view("<f2")[:, :, 0]


def _check_finite(
    scale: npt.NDArray[np.float16], offset: npt.NDArray[np.float16] | None, kind: int
) -> None:
    """Refuse a block whose lowest or highest code isn't a finite fp16 number."""
    middle = np.float32(0) if offset is None else offset.astype(np.float32)
    finite = np.ones(scale.shape, np.bool_)
    with np.errstate(invalid="ignore", over="ignore"):
        for code in (-8, 7):
            product = (scale.astype(np.float32) * code).astype(np.float16)
            finite &= np.isfinite((product.astype(np.float32) + middle).astype(np.float16))
    if not finite.all():
        row, block = np.argwhere(~finite)[0].tolist()
        parts = "scale" if offset is None else "scale and minimum"
        raise ValueError(
            f"expected {TYPE_NAMES[kind]} blocks whose {parts} give weights within fp16 (65504), "
            f"found others in row {row}, columns {block * BLOCK} to {block * BLOCK + BLOCK - 1}: "
            "use the format int8, or get the file again"
        )
