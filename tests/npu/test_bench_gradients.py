"""The measuring of gradients: what would make a method look better than it is."""

from __future__ import annotations

import numpy as np
import pytest

from bench.gradients_peers import PeerEngine
from bench.gradients_rows import (
    float64_product,
    frozen,
    gradient_rows,
    product_errors,
    row_errors,
)
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine

OPTIONS = EngineOptions(threads=1)


@pytest.mark.parametrize(
    ("distribution", "smallest", "largest"), [("heavy_tailed", 1e-9, 1e-2), ("decades", 1e-10, 1e4)]
)
def test_rows_reach_from_end_to_end(distribution: str, smallest: float, largest: float) -> None:
    rows = np.abs(gradient_rows(distribution, 64, 200))  # type: ignore[arg-type]
    sizes = rows.max(axis=1)
    assert sizes.min() == pytest.approx(smallest)
    assert sizes.max() == pytest.approx(largest)
    assert np.median(sizes / np.sqrt((rows**2).mean(axis=1))) > 6, "a Gaussian row has about 3"


def test_rows_that_are_lost_or_not_finite_are_counted_apart() -> None:
    expected = np.array([[3.0, 4.0], [3.0, 4.0], [3e-9, 4e-9], [1.0, 0.0]])
    found = np.array([[3.0, 4.0], [3.0, np.inf], [0.0, 0.0], [1.0, 0.01]], np.float32)
    errors = row_errors(found, expected)
    assert errors.rows_lost == 2
    assert errors.rows_nonfinite == 1
    assert errors.worst_row_error is None
    assert row_errors(found[[0, 2, 3]], expected[[0, 2, 3]]).worst_row_error == 1.0
    assert row_errors(found[[0, 3]], expected[[0, 3]]).worst_row_error == pytest.approx(0.01)


@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_a_head_is_compared_in_pieces(direction: str) -> None:
    matrix = frozen("fp16", 20_000, 8)
    a = np.random.default_rng(0).standard_normal((2, 8 if direction == "forward" else 20_000))
    W = matrix.dequantize().astype(np.float64)
    expected = a @ (W.T if direction == "forward" else W)
    np.testing.assert_allclose(
        float64_product(matrix, direction, a),  # type: ignore[arg-type]
        expected,
        atol=1e-12,
    )


@pytest.mark.emulator
def test_ours_keeps_the_rows_that_peers_lose_on_the_npu() -> None:
    matrix = frozen("fp16", 96, 160)
    dy = gradient_rows("decades", 32, 96)
    ours = create_engine("qnn", {"m": matrix}, OPTIONS)
    errors = product_errors(ours, matrix, "input_gradient", dy)
    assert errors.rows_lost == 0
    assert errors.worst_row_error is not None
    assert errors.worst_row_error < 5e-4
    lost = {
        peer: product_errors(
            PeerEngine(peer, "qnn", {"m": matrix}, OPTIONS),  # type: ignore[arg-type]
            matrix,
            "input_gradient",
            dy,
        ).rows_lost
        for peer in ("none", "fp32_io", "global_scale", "loss_scale", "in_graph")
    }
    assert all(lost.values()), lost


def test_the_peers_are_right_where_nothing_can_be_lost() -> None:
    """Rows of one size: a peer that lost them would be broken, not unprotected."""
    matrix = frozen("fp16", 96, 160)
    rows = np.random.default_rng(0).standard_normal((8, 160)).astype(np.float32) / 10
    for peer in ("none", "fp32_io", "global_scale", "loss_scale", "in_graph"):
        engine = PeerEngine(peer, "onnx_cpu", {"m": matrix}, OPTIONS)  # type: ignore[arg-type]
        for direction, operand in (("forward", rows), ("input_gradient", rows[:, :96])):
            errors = product_errors(engine, matrix, direction, operand.copy())  # type: ignore[arg-type]
            assert errors.worst_row_error is not None
            assert errors.worst_row_error < 5e-4, (peer, direction)
