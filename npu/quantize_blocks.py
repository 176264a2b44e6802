"""Weights in 4 bits, with a scale and perhaps an offset for every 32 neighbours along K.

    int4       W ~ code * scale              code in -8..7, scale fp16 per block: GGUF's Q4_0
    int4_min   W ~ code * scale + offset     offset fp16 per block: GGUF's Q4_1, whose minimum m
                                             belongs to its nibble 0, our code -8, and whose middle
                                             is offset = fp16(m + 8 scale)

Two codes a byte, two's complement, the even column in the low nibble: ONNX's INT4, which the NPU's
graphs take as it is. The NPU's dequantizer computes in fp16; so do we, rounding after each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npu.block_scales import Half, best_scale, best_scale_and_offset
from npu.weight_layout import BLOCK

_LARGEST_HALF = 65504.0
_ELEMENTS_AT_A_TIME = 1 << 17
"""Rows are quantised in pieces of about this many elements, which stay in the processor's cache."""


def pack(codes: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.uint8]:
    """Codes of -8..7, [N, K], as uint8 [N, K / 2]."""
    nibbles = codes.astype(np.uint8) & 0x0F
    packed: npt.NDArray[np.uint8] = np.bitwise_or(
        nibbles[:, 0::2], np.left_shift(nibbles[:, 1::2], 4), dtype=np.uint8
    )
    return packed


def unpack(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """The codes int8 [N, K] of `pack`."""
    rows, half = packed.shape
    codes = np.empty((rows, half, 2), np.int8)
    signed = packed.view(np.int8)
    np.right_shift(signed, 4, out=codes[:, :, 1])
    np.right_shift(np.left_shift(signed, 4), 4, out=codes[:, :, 0])
    return codes.reshape(rows, half * 2)


def dequantize_blocks(packed: npt.NDArray[np.uint8], scale: Half, offset: Half | None) -> Half:
    """Effective weights fp16 [N, K]: each product, and then each sum, rounded to fp16 once."""
    codes = unpack(packed)
    rows, columns = codes.shape
    blocks = codes.reshape(rows, columns // BLOCK, BLOCK).astype(np.float32)
    blocks *= scale.astype(np.float32)[:, :, None]  # exact: 4 bits times 11
    weights = blocks.astype(np.float16)
    if offset is not None:
        # Rounded to fp32 first and to fp16 then is as good as once: 24 >= 2 * 11 + 2 bits.
        blocks = weights.astype(np.float32)
        blocks += offset.astype(np.float32)[:, :, None]
        weights = blocks.astype(np.float16)
    return weights.reshape(rows, columns)


def quantize_int4(W: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.uint8], Half]:
    """Packed codes [N, K / 2] and scale [N, K / 32] of `W` fp32 [N, K].

    A scale may be negative, since -8 reaches further than 7. Values that are int4 values with a
    code -8 in each block, as Q4_0 has them, keep their codes and scales.

    Raises ValueError for entries that aren't finite or are above 16376, whose multiples leave fp16,
    and for a K that is no multiple of 32.
    """
    packed, scale, _ = _in_pieces(W, best_scale, with_offset=False)
    return packed, scale


def quantize_int4_min(W: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.uint8], Half, Half]:
    """Packed codes, scale and offset of `W` fp32 [N, K]; raises as `quantize_int4` does."""
    packed, scale, offset = _in_pieces(W, best_scale_and_offset, with_offset=True)
    return packed, scale, offset


def centre(minimum: Half, scale: Half) -> Half:
    """Our offset, of code 0, from GGUF's minimum, of nibble 0: fp16(m + 8 d).

    Rounded once, which costs at most 2**-11 of its size.
    """
    middle = minimum.astype(np.float32) + 8 * scale.astype(np.float32)
    return middle.astype(np.float16)


def _in_pieces(W: npt.NDArray[np.float32], encode: Any, *, with_offset: bool) -> Any:
    if W.ndim != 2 or W.dtype != np.float32:
        raise ValueError(
            f"expected a float32 matrix [N, K], found {W.dtype} of shape {list(W.shape)}: "
            "convert it before quantising"
        )
    N, K = W.shape
    if K % BLOCK:
        raise ValueError(
            f"expected a number of columns that is a multiple of {BLOCK}, found {K}: "
            "use the format int8"
        )
    packed = np.empty((N, K // 2), np.uint8)
    scale = np.empty((N, K // BLOCK), np.float16)
    offset = np.empty((N, K // BLOCK), np.float16) if with_offset else None
    step = max(1, _ELEMENTS_AT_A_TIME // max(1, K))
    for start in range(0, N, step):
        rows = slice(start, start + step)
        _check_sizes(W[rows], start)
        codes, *numbers = encode(np.ascontiguousarray(W[rows].reshape(-1, BLOCK).T))
        packed[rows] = pack(codes.T.reshape(-1, K).astype(np.int8))
        scale[rows] = numbers[0].reshape(-1, K // BLOCK)
        if offset is not None:
            offset[rows] = numbers[1].reshape(-1, K // BLOCK)
    return packed, scale, offset


def _check_sizes(W: npt.NDArray[np.float32], first_row: int) -> None:
    small = np.abs(W).max(axis=1, initial=0.0) <= _LARGEST_HALF / 4  # NaN isn't
    if not small.all():
        raise ValueError(
            f"expected finite weights up to {_LARGEST_HALF / 4:.0f}, found another value in row "
            f"{first_row + int(np.flatnonzero(~small)[0])}: use the format int8 or repair the "
            "source model"
        )
