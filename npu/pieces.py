"""Cutting a product into pieces that have a static graph and stay within fp16's bounds."""

from __future__ import annotations

from collections.abc import Iterator

BUCKETS = (8, 32, 64, 128, 256, 512)
"""The numbers of rows M for which graphs exist; an NPU graph has static shapes."""

LARGEST_OUTPUT_CHANNELS = 16_384
"""Weight rows (N) of one graph: bounds its scratch, and the contraction of the input gradient."""

LARGEST_INPUT_CHANNELS = 32_768
"""Weight columns (K) of one graph: with |x| < 1 and int8 weights below 1, |y| < K fits fp16."""


def row_pieces(rows: int) -> Iterator[tuple[slice, int]]:
    """Cut M rows into pieces, each with the smallest bucket that holds it."""
    for start in range(0, rows, BUCKETS[-1]):
        piece = slice(start, min(start + BUCKETS[-1], rows))
        count = piece.stop - piece.start
        yield piece, next(bucket for bucket in BUCKETS if bucket >= count)


def ranges(size: int, largest: int) -> list[slice]:
    """Cut `size` channels into ranges of at most `largest`."""
    return [slice(start, min(start + largest, size)) for start in range(0, size, largest)]
