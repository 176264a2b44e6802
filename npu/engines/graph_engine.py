"""The products by static ONNX graphs, on whichever provider opens the sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.errors import ProductError
from npu.forms.form import Form, Piece
from npu.frozen_matrix import FrozenMatrix
from npu.integer_products import IntegerProducts
from npu.ledger import Direction
from npu.pieces import row_pieces
from npu.rows import ProtectedRows, protect_rows

_REPEAT_LOWER = 6
"""A result that overflowed fp16 is computed again from rows 2**6 smaller."""


class GraphEngine(Engine):
    """fp16 products by graphs of one form.

        a fp32 ── · scale (int8, dx) ── rows to fp16 ── graph ── rows back ── · scale (int8, y)
                  host, fp32            host            form     host, fp32    host, fp32

    Long outputs are concatenated and long contractions summed, in fp32, on the host.
    """

    def __init__(
        self,
        matrices: Mapping[str, FrozenMatrix],
        options: EngineOptions,
        form: Form,
        *,
        form_why: str,
        integers: IntegerProducts | None = None,
        fallback: Engine | None = None,
    ) -> None:
        """An engine over `matrices` whose graphs are of `form`, for the reason `form_why`.

        With `integers`, they compute the forward products of int8 weights, as far as they can.
        """
        super().__init__(matrices, options, fallback=fallback)
        self._integers = integers
        self.buckets: tuple[int, ...] = options.buckets
        self.form = form.name
        self.form_why = form_why
        self.graphs = form
        """What runs the pieces; asked directly by the self-test alone."""

    def compute(self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        """The product of fp32 `a` with `matrix`; see Engine.compute."""
        pieces = []
        for rows, bucket in row_pieces(a.shape[0], self.buckets):
            self.ledger.rows(padded=bucket - (rows.stop - rows.start))
            pieces.append(self._bucket(matrix, direction, a[rows], bucket))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def versions(self) -> dict[str, str]:
        """Also the form: its rounding may differ from another's by a bit."""
        return {**super().versions(), "form": self.form}

    def report(self) -> dict[str, Any]:
        """Also the buckets, and what the form reports."""
        return {
            **super().report(),
            "buckets": list(self.buckets),
            "activations": self.options.activations,
            **self.graphs.report(),
        }

    def close(self) -> None:
        """Also let go of the graphs."""
        super().close()
        self.graphs.close()
        if self._integers is not None:
            self._integers.close()

    def _bucket(
        self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor, bucket: int
    ) -> torch.Tensor:
        """The product for rows that fit `bucket`, over all ranges of output and contraction."""
        N, K = matrix.shape
        forward = direction == "forward"
        host_scale = matrix.host_scale
        scale = None if host_scale is None else torch.from_numpy(host_scale.copy())
        result = a.new_zeros(a.shape[0], N if forward else K)
        rows, columns = self.graphs.cut(matrix)
        contracted, produced = (columns, rows) if forward else (rows, columns)
        for source in contracted:
            operand = a[:, source]
            if scale is not None and not forward:
                operand = operand * scale[source]
            protected = protect_rows(operand, matrix=matrix.name, direction=direction)
            for target in produced:
                piece = Piece(matrix, *((target, source) if forward else (source, target)))
                if self._integers is not None and forward and matrix.format == "int8":
                    part = self._by_integers(self._integers, piece, operand, protected, bucket)
                else:
                    part = self._by_halves(piece, direction, operand, protected, bucket)
                result[:, target] += part
        if scale is not None and forward:
            result *= scale
        return result

    def _by_integers(
        self,
        integers: IntegerProducts,
        piece: Piece,
        operand: torch.Tensor,
        protected: ProtectedRows,
        bucket: int,
    ) -> torch.Tensor:
        """A forward product with a piece; in fp16 the rows that integers can't hold."""
        y, left = integers.multiply(self.name, self.ledger, piece, operand, bucket)
        if left.any():
            halves = self._by_halves(piece, "forward", operand, protected, bucket)
            y = torch.where(left[:, None], halves, y)
        return y

    def _by_halves(
        self,
        piece: Piece,
        direction: Direction,
        operand: torch.Tensor,
        protected: ProtectedRows,
        bucket: int,
    ) -> torch.Tensor:
        """The product with a piece in fp16, repeated smaller if it overflows.

        Raises ProductError if it overflows again.
        """
        part = self._run(piece, direction, protected, bucket)
        if part is None:
            name = piece.matrix.name
            self.ledger.repeat(self.name, name, direction)
            lower = protect_rows(operand, matrix=name, direction=direction, lower=_REPEAT_LOWER)
            part = self._run(piece, direction, lower, bucket)
        if part is None:
            raise ProductError("the result is not finite, at 2**-6 of the scale either")
        return part

    def _run(
        self, piece: Piece, direction: Direction, rows: ProtectedRows, bucket: int
    ) -> torch.Tensor | None:
        """The form's result for the given rows, in fp32; None if fp16 could not hold it."""
        count, width = rows.half.shape
        padded = rows.half.new_zeros(bucket, width)
        padded[:count] = rows.half
        output = self.graphs.run(piece, direction, padded.numpy())
        result = torch.from_numpy(output)[:count].float()
        # Exact: the sum of fp16 values can't overflow fp32.
        return rows.restore(result) if result.sum().isfinite() else None
