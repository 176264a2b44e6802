"""Forward products of int8 weights in 16-bit integers: an opt-in beside fp16.

Row protection makes the operand's step exact and the same for every row; the result's range is
fixed (`graphs_int16.py`), so nothing is calibrated on examples that the next ones may exceed. A
result at the end of its range, at the rails, may be any larger number: it never leaves here. The
rows with such results are computed again from operands 2**3 smaller; a row that reaches the rails
there too is left to fp16.

Error of a row on SmolLM2-135M with real text, against the same effective weights: median 1.1e-4 to
2.5e-4 by kind of matrix where fp16 has 2.5e-4 to 2.9e-4, but the worst rows, whose largest
activation is 40 times their root mean square, 3.4e-3 where fp16 has 5e-4. One step's adapter
gradients against fp32: median tensor 3.6e-3, worst 1.1e-2, where fp16 has 3.1e-3 and 7.7e-3. So it
is worth choosing only where an NPU is measured to be faster with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from npu.errors import EngineError, ProductError
from npu.forms.form import Piece, run_session
from npu.graphs import OPERAND, WEIGHT
from npu.graphs_int16 import Int16Spec, build_int16_graph, result_step
from npu.ledger import Direction, Ledger
from npu.opened_once import OpenedOnce
from npu.rows import CODE_ZERO, LARGEST_OPERAND_CODE, code_rows
from npu.sessions import SessionOpener

_REPEAT_LOWER = 3
"""Rows at the rails are computed again from operands 2**3 smaller: 2 sqrt(K) fits then."""

_DIRECTION: Direction = "forward"
_TRIAL = (16, 1024)


class IntegerResult(NamedTuple):
    """What integers could compute of a product."""

    y: torch.Tensor
    """fp32 [M, N], without the host scale."""
    left: torch.Tensor
    """bool [M]: rows at the rails at both scales, to be computed otherwise."""


class IntegerProducts:
    """y = x W^T for int8 weights, by graphs that take the weight as an input."""

    def __init__(self, open_session: SessionOpener) -> None:
        """Graphs opened with `open_session`, which is tried first.

        Raises EngineError if a sum that is too large wraps instead of stopping at the rails.
        """
        self._open_session = open_session
        self._session: OpenedOnce[Int16Spec] = OpenedOnce(
            lambda spec: open_session(build_int16_graph(spec))
        )
        self._check_rails()

    def multiply(
        self, engine: str, ledger: Ledger, piece: Piece, x: torch.Tensor, bucket: int
    ) -> IntegerResult:
        """The product of fp32 `x` [M, K] with `piece`, M up to `bucket`.

        Counts in `ledger`, under `engine`, values at the rails and repeats. Raises NonFiniteInput,
        ProductError.
        """
        y, rows = self._run(piece, x, bucket, 0)
        if rows.any():
            name = piece.matrix.name
            ledger.rails(engine, name, _DIRECTION, int(rows.sum()))
            ledger.repeat(engine, name, _DIRECTION)
            repeated, again = self._run(piece, x, bucket, _REPEAT_LOWER)
            y = torch.where(rows[:, None] > 0, repeated, y)
            rows = again.where(rows > 0, 0)
            if rows.any():
                ledger.rails(engine, name, _DIRECTION, int(rows.sum()))
        return IntegerResult(y, rows > 0)

    def close(self) -> None:
        """Let go of the sessions."""
        self._session.clear()

    def _run(
        self, piece: Piece, x: torch.Tensor, bucket: int, lower: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The result fp32 [M, N], and in each row how many operands or results are at the rails."""
        coded = code_rows(x, matrix=piece.matrix.name, direction=_DIRECTION, lower=lower)
        N, K = piece.shape
        operand = np.full((bucket, K), CODE_ZERO, np.uint16)
        operand[: len(x)] = coded.codes
        weight = np.ascontiguousarray(piece.matrix.codes[piece.rows, piece.columns])
        session = self._session(Int16Spec(N, K, bucket))
        codes = run_session(session, {OPERAND: operand, WEIGHT: weight})[: len(x)]
        railed = torch.from_numpy((codes == 0) | (codes == np.iinfo(np.uint16).max)).sum(dim=1)
        values = torch.from_numpy(codes.astype(np.float32))
        y = values.sub_(CODE_ZERO).mul_(result_step(K)).mul_(coded.powers)
        return y, railed + coded.cut_off

    def _check_rails(self) -> None:
        """All operands and codes at their largest: the sum is 2**32 in units of both steps."""
        N, K = _TRIAL
        weight = np.full((N, K), 127, np.int8)
        weight[1::2] = -127
        session = self._open_session(build_int16_graph(Int16Spec(N, K, M=8)))
        operand = np.full((8, K), CODE_ZERO + LARGEST_OPERAND_CODE, np.uint16)
        try:
            found = run_session(session, {OPERAND: operand, WEIGHT: weight})
        except ProductError as error:
            raise EngineError(f"16-bit integer products can't be had: {error}") from error
        if not ((found[:, 0::2] == 65535).all() and (found[:, 1::2] == 0).all()):
            raise EngineError(
                "expected sums beyond a 16-bit integer result's range to stop at its ends, found "
                "others: use fp16 activations on this NPU"
            )
