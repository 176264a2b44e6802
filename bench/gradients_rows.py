"""Gradient rows to lose, and how many of them a method loses."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from npu.engine import Engine
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.quantize import quantize
from npu.weight_layout import WeightFormat

Distribution = Literal["heavy_tailed", "decades"]

LOST = 0.5
"""A row this far from the truth, relative to its size, has lost its direction."""


@dataclass(frozen=True)
class RowErrors:
    """Relative errors of the rows of a product against float64 of the same effective weights."""

    rows: int
    rows_lost: int
    """Off by half their size or more, or not finite."""
    rows_nonfinite: int
    median_row_error: float | None
    """None: not finite."""
    worst_row_error: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def gradient_rows(
    distribution: Distribution, rows: int, width: int, seed: int = 0
) -> npt.NDArray[np.float32]:
    """dy fp32 [rows, width]: Student-t with 2.5 degrees of freedom inside a row.

    heavy_tailed: row sizes lognormal, stretched so that the largest entries of the rows range from
    1e-9 to 1e-2: tokens the model is sure of beside those that it gets wrong.
    decades: largest entries evenly from 1e-10 to 1e4, what every loss scale must reckon with.
    """
    random = np.random.default_rng(seed)
    entries = random.standard_t(2.5, (rows, width))
    entries /= np.abs(entries).max(axis=1, keepdims=True)
    if distribution == "decades":
        exponents = np.linspace(-10, 4, rows)
    else:
        exponents = random.standard_normal(rows)
        exponents = np.interp(exponents, (exponents.min(), exponents.max()), (-9, -2))
    return (entries * 10.0 ** exponents[:, None]).astype(np.float32)


def row_errors(found: npt.NDArray[Any], expected: npt.NDArray[np.float64]) -> RowErrors:
    """Compare `found` [M, C] with `expected`, whose rows aren't zero."""
    finite = np.isfinite(found).all(axis=1)
    errors = np.full(len(found), np.inf)
    difference = found[finite].astype(np.float64) - expected[finite]
    errors[finite] = np.linalg.norm(difference, axis=1) / np.linalg.norm(expected[finite], axis=1)
    return RowErrors(
        rows=len(found),
        rows_lost=int((errors >= LOST).sum()),
        rows_nonfinite=int((~finite).sum()),
        median_row_error=_number(np.median(errors)),
        worst_row_error=_number(errors.max()),
    )


def product_errors(
    engine: Engine, matrix: FrozenMatrix, direction: Direction, a: npt.NDArray[Any]
) -> RowErrors:
    """One product on `engine`, which has no fallback, against float64."""
    operand = torch.from_numpy(a)
    if direction == "forward":
        found = engine.forward("m", operand)
    else:
        found = engine.input_gradient("m", operand)
    return row_errors(found.numpy(), float64_product(matrix, direction, a))


def float64_product(
    matrix: FrozenMatrix, direction: Direction, a: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """By pieces of the weight's rows: a whole head in float64 takes a gigabyte."""
    N, K = matrix.shape
    forward = direction == "forward"
    result = np.zeros((len(a), N if forward else K))
    for start in range(0, N, 8192):
        rows = slice(start, start + 8192)
        W = matrix.take(rows).dequantize().astype(np.float64)
        if forward:
            result[:, rows] = a.astype(np.float64) @ W.T
        else:
            result += a[:, rows].astype(np.float64) @ W
    return result


def frozen(format: WeightFormat, N: int, K: int) -> FrozenMatrix:
    weight = np.random.default_rng(0).standard_normal((N, K), np.float32)
    weight *= np.float32(1 / math.sqrt(K))
    quantized = quantize(weight, format)
    return FrozenMatrix("m", format, quantized.codes, quantized.scale, quantized.offset)


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
