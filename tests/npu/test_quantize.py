from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import npu.quantize
from npu.quantize import quantize_int8
from npu.weights import FrozenMatrix

ENTRIES = st.floats(width=32, min_value=-(2.0**127), max_value=2.0**127)
MATRICES = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=ENTRIES
)


def effective(codes: np.ndarray[Any, Any], scale: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return codes.astype(np.float64) / 128 * scale.astype(np.float64)[:, None]


@given(W=MATRICES)
def test_no_entry_is_off_by_more_than_half_a_step(W: np.ndarray[Any, Any]) -> None:
    codes, scale = quantize_int8(W)
    assert codes.dtype == np.int8
    assert scale.dtype == np.float32
    assert codes.shape == W.shape
    assert scale.shape == (W.shape[0],)
    assert np.isfinite(scale).all()
    assert (scale > 0).all()
    step = scale.astype(np.float64)[:, None] / 128
    # 2**-16 of a step for fp32 roundings of W / max * 127; 2**-149 is fp32's smallest scale.
    allowed = step * (0.5 + 2**-15) + 2.0**-149
    assert (np.abs(effective(codes, scale) - W) <= allowed).all()


@given(W=MATRICES)
def test_the_largest_entry_of_a_row_gets_the_largest_code(W: np.ndarray[Any, Any]) -> None:
    codes, scale = quantize_int8(W)
    largest = np.abs(W).max(axis=1)
    zero = largest == 0
    assert (np.abs(codes).max(axis=1)[~zero] == 127).all()
    assert not codes[zero].any()
    assert (scale[zero] == 1).all()


@given(W=MATRICES)
def test_quantising_effective_weights_again_changes_nothing(W: np.ndarray[Any, Any]) -> None:
    codes, scale = quantize_int8(W)
    again, _ = quantize_int8(FrozenMatrix("m", "int8", codes, scale).dequantize())
    normal = scale >= 2.0**-100
    assert np.array_equal(again[normal], codes[normal])


@given(W=MATRICES)
def test_a_row_is_quantised_by_itself_alone(W: np.ndarray[Any, Any]) -> None:
    codes, scale = quantize_int8(W)
    for row in range(W.shape[0]):
        alone = quantize_int8(W[row : row + 1])
        assert np.array_equal(alone[0][0], codes[row])
        assert alone[1][0] == scale[row]


def test_a_known_row() -> None:
    codes, scale = quantize_int8(np.array([[1.27, -0.64, 0.0, 0.006]], dtype=np.float32))
    assert codes.tolist() == [[127, -64, 0, 1]]
    assert scale.tolist() == [pytest.approx(1.28)]


def test_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    W = np.random.default_rng(0).standard_normal((37, 11)).astype(np.float32)
    whole = quantize_int8(W)
    monkeypatch.setattr(npu.quantize, "_ELEMENTS_AT_A_TIME", 50)
    pieces = quantize_int8(W)
    assert np.array_equal(whole[0], pieces[0])
    assert np.array_equal(whole[1], pieces[1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.finfo(np.float32).max])
def test_what_has_no_finite_scale_is_refused_by_row(
    bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npu.quantize, "_ELEMENTS_AT_A_TIME", 8)
    W = np.ones((9, 4), dtype=np.float32)
    W[6, 2] = bad
    with pytest.raises(ValueError, match="row 6"):
        quantize_int8(W)


def test_other_types_and_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="float64"):
        quantize_int8(np.ones((2, 2)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\[4\]"):
        quantize_int8(np.ones(4, dtype=np.float32))
