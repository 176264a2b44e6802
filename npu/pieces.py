"""Cutting a product into pieces that have a static graph and stay within fp16's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

BUCKETS = (8, 32, 64, 128, 256, 512)
"""The numbers of rows M for which graphs exist; an NPU graph has static shapes."""


ONE_MORE_PIECE = 48
"""What a piece costs beside its rows, in rows: all weights are read and decoded once more. Measured
on CPUs; of an NPU it isn't known."""


def row_pieces(rows: int, buckets: Sequence[int] = BUCKETS) -> Iterator[tuple[slice, int]]:
    """Cut M rows into pieces, each with one of the ascending `buckets`, so that it costs least.

    All but the last fill their buckets: 300 rows are 256 and 44 of 64, but 400 are 400 of 512.
    """
    start = 0
    while start < rows:
        bucket = _first_bucket(min(rows - start, buckets[-1]), tuple(buckets))
        yield slice(start, min(start + bucket, rows)), bucket
        start += bucket


@cache
def _first_bucket(rows: int, buckets: tuple[int, ...]) -> int:
    """The one to begin with for at most as many rows as the last of them has."""
    return min(reversed(buckets), key=lambda bucket: _cost(rows, bucket, buckets))


def _cost(rows: int, bucket: int, buckets: tuple[int, ...]) -> int:
    """Of these rows, if that bucket is the first: rows with those of zeros, and pieces."""
    rest = rows - bucket
    more = _cost(rest, _first_bucket(rest, buckets), buckets) if rest > 0 else 0
    return ONE_MORE_PIECE + bucket + more


def ranges(size: int, largest: int) -> list[slice]:
    """Cut `size` channels into ranges of at most `largest`."""
    return [slice(start, min(start + largest, size)) for start in range(0, size, largest)]
