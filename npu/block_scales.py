"""The scale, and perhaps the offset, with which a block of 32 weights loses least in 4 bits.

The plain choice takes the block's extreme to the extreme code. Stretched a little, so that most
entries lie better while an extreme one is cut off, a block often loses less. A few such stretches
are tried: each gives codes, the codes give the scale (and offset) of least squares, and the best
one replaces the plain choice where its squared error, with every fp16 rounding, is truly smaller.
So no block is ever worse than plainly done, and values that are 4-bit values already stay.

Sums run over a fixed tree of element-wise additions: the same weights give the same bytes, and so
the same identity of the base model, on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LOWEST, HIGHEST = -8, 7

_EXTREME_CODES = (-8.0, -8.6, -7.4, 7.0, 7.6, 8.3)
"""int4: the code of a block's largest entry, cut off above 7 and below -8."""

_LEVELS = (15.0, 14.0, 14.5, 15.5, 16.0)
"""int4_min: steps between a block's smallest entry and its largest, cut off above 15."""

Columns = npt.NDArray[np.float32]
"""fp32 [32, blocks]: one block a column, so that all blocks are worked on side by side."""

Numbers = npt.NDArray[np.float32]
"""fp32 [blocks]: one number a block."""

Half = npt.NDArray[np.float16]


def best_scale(x: Columns) -> tuple[Columns, Half]:
    """Codes of -8..7 and scale for x ~ code * scale."""
    at = np.abs(x).argmax(axis=0)[None]
    extreme = np.take_along_axis(x, at, 0)[0]
    ratio = x / _not_zero(extreme)
    most, fitted = np.zeros_like(extreme), np.zeros_like(extreme)
    for code in _EXTREME_CODES:
        codes = _rounded(ratio * np.float32(code), LOWEST, HIGHEST)
        with_x, with_itself = _sum(codes * ratio), _not_zero(_sum(codes * codes))
        explained = with_x * with_x / with_itself
        better = explained > most
        most = np.where(better, explained, most)
        fitted = np.where(better, with_x / with_itself, fitted)
    plain = (extreme / np.float32(LOWEST)).astype(np.float16)
    scale = (extreme * fitted).astype(np.float16)
    codes, error = _coded(x, scale, None)
    plain_codes, plain_error = _coded(x, plain, None)
    better = error < plain_error
    return np.where(better, codes, plain_codes), np.where(better, scale, plain)


def best_scale_and_offset(x: Columns) -> tuple[Columns, Half, Half]:
    """Codes of -8..7, scale and offset for x ~ code * scale + offset."""
    low, width = x.min(axis=0), np.ptp(x, axis=0)
    ratio = (x - low) / _not_zero(width)
    mean = _sum(ratio.copy()) / np.float32(len(x))
    from_mean = ratio - mean
    most, fitted, middle = np.zeros_like(low), np.zeros_like(low), mean
    for levels in _LEVELS:
        codes = _rounded(ratio * np.float32(levels), 0, HIGHEST - LOWEST)
        codes += np.float32(LOWEST)
        average = _sum(codes.copy()) / np.float32(len(x))
        codes -= average
        with_x, with_itself = _sum(codes * from_mean), _not_zero(_sum(codes * codes))
        explained = with_x * with_x / with_itself
        better = explained > most
        slope = with_x / with_itself
        most = np.where(better, explained, most)
        fitted = np.where(better, slope, fitted)
        middle = np.where(better, mean - slope * average, middle)
    plain = (width / np.float32(HIGHEST - LOWEST)).astype(np.float16)
    plain_offset = (low - LOWEST * plain.astype(np.float32)).astype(np.float16)
    scale = (width * fitted).astype(np.float16)
    offset = (low + width * middle).astype(np.float16)
    codes, error = _coded(x, scale, offset)
    plain_codes, plain_error = _coded(x, plain, plain_offset)
    better = error < plain_error
    return (
        np.where(better, codes, plain_codes),
        np.where(better, scale, plain),
        np.where(better, offset, plain_offset),
    )


def _coded(x: Columns, scale: Half, offset: Half | None) -> tuple[Columns, Numbers]:
    """The nearest codes, and each block's squared error with every rounding of the dequantizer.

    The error is relative to the block's largest magnitude: squares of tiny weights would vanish.
    """
    step = scale.astype(np.float32)
    middle = np.float32(0) if offset is None else offset.astype(np.float32)
    with np.errstate(over="ignore"):
        codes = _rounded((x - middle) / _not_zero(step), LOWEST, HIGHEST)
    weights = (codes * step).astype(np.float16).astype(np.float32)
    if offset is not None:
        weights = (weights + middle).astype(np.float16).astype(np.float32)
    off = (weights - x) / _not_zero(np.abs(x).max(axis=0))
    return codes, _sum(off * off)


def _rounded(values: Columns, lowest: int, highest: int) -> Columns:
    """The nearest whole numbers in a range, in place."""
    np.rint(values, out=values)
    np.clip(values, lowest, highest, out=values)
    return values


def _not_zero(values: Numbers) -> Numbers:
    """A divisor: what is zero becomes 1."""
    return np.where(values == 0, np.float32(1), values)


def _sum(values: Columns) -> Numbers:
    """Sum over the 32 of a block, the same on every machine; `values` is used up."""
    count = len(values)
    while count > 1:
        count //= 2
        values[:count] += values[count : 2 * count]
    total: Numbers = values[0]
    return total
