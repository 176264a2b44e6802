"""What each weight format holds of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from npu.weight_layout import WeightFormat, part_bytes


class FormatShare(TypedDict):
    """What one format holds of a model: matrices, their weights, their bytes in the file."""

    matrices: int
    parameters: int
    bytes: int


def format_bytes(format: WeightFormat, shape: tuple[int, int]) -> int:
    """What a matrix [N, K] takes in that format: codes, scale and offset.

    Raises WeightFileError for a K that can't be cut into the format's blocks.
    """
    return sum(part or 0 for part in part_bytes(format, *shape))


def format_shares(
    matrices: Iterable[tuple[WeightFormat, tuple[int, int]]],
) -> dict[WeightFormat, FormatShare]:
    """What each format that occurs holds, in order of its first matrix."""
    shares: dict[WeightFormat, FormatShare] = {}
    for format, (N, K) in matrices:
        share = shares.setdefault(format, {"matrices": 0, "parameters": 0, "bytes": 0})
        share["matrices"] += 1
        share["parameters"] += N * K
        share["bytes"] += format_bytes(format, (N, K))
    return shares
