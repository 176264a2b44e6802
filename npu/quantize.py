"""Quantisation of a frozen weight: symmetric int8 here, 4 bits in `quantize_blocks.py`.

int8 has one scale per output channel. The graph on the NPU multiplies every code by one exact
scalar, 2**-7, and knows no other scale (a per-channel scale inside it is silently wrong for the
input gradient). What differs between output channels stays on the host, in fp32:

    W[n, k]  ~  codes[n, k] * 2**-7 * scale[n]          codes in [-127, 127]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu.quantize_blocks import quantize_int4, quantize_int4_min
from npu.weight_layout import WeightFormat

CODE_STEP = 2.0**-7
"""The exact scalar every int8 code is multiplied by, on every engine."""

LARGEST_CODE = 127

_ELEMENTS_AT_A_TIME = 1 << 22
"""Rows are quantised in pieces of about this many elements, so that temporaries stay small."""


@dataclass(frozen=True, eq=False)
class Quantized:
    """Codes, scale and offset of a matrix, as `FrozenMatrix` describes them for each format."""

    codes: npt.NDArray[Any]
    scale: npt.NDArray[Any] | None
    offset: npt.NDArray[np.float16] | None = None


def quantize(W: npt.NDArray[np.float32], format: WeightFormat) -> Quantized:
    """The weight `W` fp32 [N, K] in `format`.

    Raises ValueError for a weight that has no values in that format.
    """
    if format == "int8":
        return Quantized(*quantize_int8(W))
    if format == "int4":
        return Quantized(*quantize_int4(W))
    if format == "int4_min":
        return Quantized(*quantize_int4_min(W))
    with np.errstate(over="ignore"):
        codes = W.astype("<f2")
    if not np.isfinite(codes).all():
        raise ValueError(
            "expected finite weights within fp16 (65504), found others: "
            "use the format int8 or repair the source model"
        )
    return Quantized(codes, None)


def quantize_int8(
    W: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Codes int8 [N, K] and scale fp32 [N] of the weight `W` fp32 [N, K].

    `scale = max|row| / 127 * 128`, so that the largest entry of a row gets the code +-127; a row
    of zeros gets the scale 1. The error of an entry is at most half a step, scale * 2**-8.

    Raises ValueError if `W` is not fp32 [N, K] or holds an entry that is not finite, or so large
    that its scale isn't.
    """
    if W.ndim != 2 or W.dtype != np.float32:
        raise ValueError(
            f"expected a float32 matrix [N, K], found {W.dtype} of shape {list(W.shape)}: "
            "convert it before quantising"
        )
    rows, columns = W.shape
    codes = np.empty((rows, columns), dtype=np.int8)
    scale = np.empty(rows, dtype=np.float32)
    step = max(1, _ELEMENTS_AT_A_TIME // max(1, columns))
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        codes[piece], scale[piece] = _quantize_rows(W[piece], first_row=start)
    return codes, scale


def _quantize_rows(
    W: npt.NDArray[np.float32], *, first_row: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    largest = np.max(np.abs(W), axis=1, initial=np.float32(0.0))
    with np.errstate(over="ignore"):
        scale = (largest.astype(np.float64) * (128 / LARGEST_CODE)).astype(np.float32)
    if not np.isfinite(scale).all():
        row = first_row + int(np.flatnonzero(~np.isfinite(scale))[0])
        raise ValueError(
            f"expected finite weights below 3.3e38, found another value in row {row}: "
            "repair the source model"
        )
    zero = largest == 0
    scale[zero] = 1.0
    largest[zero] = 1.0
    # W / largest lies in [-1, 1] even where `largest` is subnormal and its reciprocal overflows.
    codes = np.rint(W / largest[:, None] * np.float32(LARGEST_CODE)).astype(np.int8)
    return codes, scale
