from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npu.errors import NonFiniteInput
from npu.rows import CODE_ZERO, OPERAND_STEP, code_rows, protect_rows

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
ROWS = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=FINITE)


def protect(rows: np.ndarray[Any, Any] | torch.Tensor, lower: int = 0) -> Any:
    return protect_rows(torch.as_tensor(rows), matrix="m", direction="forward", lower=lower)


@given(rows=ROWS)
def test_any_finite_row_survives_within_fp16_rounding(rows: np.ndarray[Any, Any]) -> None:
    protected = protect(rows)
    assert protected.half.dtype == torch.float16
    assert protected.half.isfinite().all()
    back = protected.half.double().numpy() * protected.powers.double().numpy()
    size = np.abs(rows.astype(np.float64)).max(axis=1, keepdims=True)
    # 2**-11 of an entry (11 significant bits), or half of fp16's smallest step, 2**-25, of a row
    # scaled to at least 0.5; rows below 2**-126 are scaled to less, down to 2**-23.
    step = np.where(size >= 2.0**-126, size * 2**-24, 2.0**-125 * 2**-25)
    assert (np.abs(back - rows) <= np.maximum(np.abs(rows.astype(np.float64)) * 2**-11, step)).all()


@given(rows=ROWS, lower=st.sampled_from([0, 6]))
def test_powers_are_exact_and_bring_the_largest_entry_into_its_octave(
    rows: np.ndarray[Any, Any], lower: int
) -> None:
    protected = protect(rows, lower)
    powers = protected.powers.double().numpy()[:, 0]
    assert (np.frexp(powers)[0] == 0.5).all()
    size = np.abs(rows.astype(np.float64)).max(axis=1)
    ordinary = (size >= 2.0**-126) & (size < 2.0 ** (126 - lower))
    scaled = size[ordinary] / powers[ordinary] * 2**lower
    assert ((scaled >= 0.5) & (scaled < 1)).all()
    if lower == 0:
        assert (powers[size == 0] == 1).all()


def test_every_power_of_two_is_kept_exactly() -> None:
    powers = np.ldexp(np.float32(1), np.arange(-149, 128))[:, None]
    rows = np.hstack([powers, -powers, 0 * powers]).astype(np.float32)
    protected = protect(rows)
    assert np.array_equal(protected.restore(protected.half).numpy(), rows)


def test_a_row_is_scaled_by_itself_alone() -> None:
    rows = np.array([[1e-30, 2e-30], [3e30, 1e30], [0, 0]], dtype=np.float32)
    together = protect(rows)
    for i, row in enumerate(rows):
        assert torch.equal(together.half[i], protect(row[None]).half[0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_non_finite_rows_are_refused_by_name(bad: float, direction: Any) -> None:
    rows = torch.ones(3, 4)
    rows[1, 2] = bad
    with pytest.raises(NonFiniteInput, match=f"'layers.3.mlp.down_proj', {direction}"):
        protect_rows(rows, matrix="layers.3.mlp.down_proj", direction=direction)


@given(rows=ROWS, lower=st.sampled_from([0, 3]))
def test_codes_are_within_half_a_step_or_their_row_is_told(
    rows: np.ndarray[Any, Any], lower: int
) -> None:
    coded = code_rows(torch.from_numpy(rows), matrix="m", direction="forward", lower=lower)
    protected = protect(rows, lower)
    assert torch.equal(coded.powers, protected.powers)
    size = np.abs(rows.astype(np.float64)).max(axis=1)
    assert (coded.cut_off.numpy() == (size >= 2.0**126)).all()
    found = (coded.codes.astype(np.float64) - CODE_ZERO) * OPERAND_STEP
    scaled = rows.astype(np.float64) / coded.powers.double().numpy()
    # An entry that would round to 1 is one step lower.
    allowed = np.where(scaled > 1 - OPERAND_STEP / 2, OPERAND_STEP, OPERAND_STEP / 2)
    whole = ~coded.cut_off.numpy()
    assert (np.abs(found - scaled) <= allowed)[whole].all()
    assert (coded.codes[rows == 0] == CODE_ZERO).all()


def test_a_row_that_is_not_finite_has_no_codes() -> None:
    with pytest.raises(NonFiniteInput, match="'m', forward"):
        code_rows(torch.tensor([[1.0, torch.nan]]), matrix="m", direction="forward")
