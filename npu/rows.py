"""Row protection: activations and gradients survive fp16, whatever the size of each row.

On the host, in fp32, each row is divided by the power of two that brings its largest magnitude
into [0.5, 1), becomes fp16, and its results are multiplied back. Powers of two are exact, so fp16
rounds every row alike: a gradient row at 1e-9 keeps its 11 bits, one at 1e5 doesn't overflow.
(Scaling inside the graph is worse than none: "fp32" tensors are fp16 there.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from npu.errors import NonFiniteInput
from npu.ledger import Direction

_LARGEST_EXPONENT = 126
"""2**e and 2**-e are both normal fp32 numbers up to here."""

OPERAND_STEP = 2.0**-15
"""What one 16-bit code of a protected row stands for: exact, and the same for all rows."""

CODE_ZERO = 1 << 15
"""The unsigned code of zero."""

LARGEST_OPERAND_CODE = CODE_ZERO - 1
"""Above CODE_ZERO; a scaled entry may round to 1, which is one more."""

# From a table, since no torch kernel promises exact powers on every CPU.
_POWERS = torch.tensor([2.0**e for e in range(-_LARGEST_EXPONENT, _LARGEST_EXPONENT + 1)])


@dataclass(frozen=True)
class ProtectedRows:
    """Rows made fit for fp16."""

    half: torch.Tensor
    """fp16 [M, C]."""
    powers: torch.Tensor
    """fp32 [M, 1], exact powers of two: rows = half * powers, up to fp16 rounding."""

    def restore(self, result: torch.Tensor) -> torch.Tensor:
        """Multiply the rows of `result` [M, any], computed from `half`, back; fp32."""
        return result.float().mul_(self.powers)


@dataclass(frozen=True)
class CodedRows:
    """Rows as 16-bit integers."""

    codes: npt.NDArray[np.uint16]
    """[M, C]; the code c stands for (c - CODE_ZERO) * OPERAND_STEP."""
    powers: torch.Tensor
    """fp32 [M, 1], exact powers of two; what the codes stand for, times these, is the rows."""
    cut_off: torch.Tensor
    """bool [M]: rows with entries from 2**126 on, which no power of two in fp32 brings below 1."""


def protect_rows(
    rows: torch.Tensor, *, matrix: str, direction: Direction, lower: int = 0
) -> ProtectedRows:
    """Scale fp32 `rows` [M, C] so that the largest magnitude of each lies in [0.5, 1) * 2**-lower.

    Rows of zeros are divided by 1. Rows whose largest magnitude is below 2**-126 (subnormal) or
    from 2**126 on are scaled by 2**126 only, and stay well inside fp16.

    Raises NonFiniteInput naming `matrix` and `direction`.
    """
    scaled, powers = _scale_rows(rows, matrix, direction, lower)
    return ProtectedRows(half=scaled.half(), powers=powers)


def code_rows(
    rows: torch.Tensor, *, matrix: str, direction: Direction, lower: int = 0
) -> CodedRows:
    """Scale `rows` as `protect_rows` does and round them to 16-bit integers, to 1 - 2**-15 at most.

    Raises NonFiniteInput naming `matrix` and `direction`.
    """
    scaled, powers = _scale_rows(rows, matrix, direction, lower)
    cut_off = scaled.abs().amax(dim=1) >= 1
    codes = scaled.div_(OPERAND_STEP).round_().clamp_(-CODE_ZERO, LARGEST_OPERAND_CODE)
    return CodedRows(codes.add_(CODE_ZERO).numpy().astype(np.uint16), powers, cut_off)


def _scale_rows(
    rows: torch.Tensor, matrix: str, direction: Direction, lower: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """New rows fp32, and the powers that scale them back."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    if not largest.isfinite().all():
        raise NonFiniteInput(matrix, direction)
    exponents = torch.frexp(largest).exponent.long() + lower
    exponents.clamp_(-_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    up = _POWERS[exponents + _LARGEST_EXPONENT]
    down = _POWERS[_LARGEST_EXPONENT - exponents]
    return rows * down, up
