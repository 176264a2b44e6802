"""Cutting a product into pieces that have a static graph and stay within fp16's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BUCKETS = (8, 32, 64, 128, 256, 512)
"""The numbers of rows M for which graphs exist; an NPU graph has static shapes."""


def row_pieces(rows: int, buckets: Sequence[int] = BUCKETS) -> Iterator[tuple[slice, int]]:
    """Cut M rows into pieces, each with the smallest of the ascending `buckets` that holds it."""
    for start in range(0, rows, buckets[-1]):
        piece = slice(start, min(start + buckets[-1], rows))
        count = piece.stop - piece.start
        yield piece, next(bucket for bucket in buckets if bucket >= count)


def ranges(size: int, largest: int) -> list[slice]:
    """Cut `size` channels into ranges of at most `largest`."""
    return [slice(start, min(start + largest, size)) for start in range(0, size, largest)]
