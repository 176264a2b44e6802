"""The products by static ONNX graphs, on whichever provider opens the sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.errors import EngineError, ProductError, one_line
from npu.frozen_matrix import FrozenMatrix
from npu.graphs import OPERAND, RESULT, WEIGHT, GraphSpec, InputFormat, build_graph
from npu.ledger import Direction
from npu.pieces import LARGEST_INPUT_CHANNELS, LARGEST_OUTPUT_CHANNELS, ranges, row_pieces
from npu.quantize_blocks import dequantize_blocks
from npu.rows import ProtectedRows, protect_rows
from npu.sessions import Session, SessionOpener
from npu.weight_layout import BLOCK_FORMATS

_REPEAT_LOWER = 6
"""A result that overflowed fp16 is computed again from rows 2**6 smaller."""


class GraphEngine(Engine):
    """fp16 products by graphs of form `inputs`; one graph serves all weights of a shape.

        a fp32 ── · scale (int8, dx) ── rows to fp16 ── graph ── rows back ── · scale (int8, y)
                  host, fp32            host            engine   host, fp32    host, fp32

    Long outputs are concatenated and long contractions summed, in fp32, on the host.
    """

    form = "inputs"

    def __init__(
        self,
        matrices: Mapping[str, FrozenMatrix],
        options: EngineOptions,
        open_session: SessionOpener,
        *,
        fallback: Engine | None = None,
    ) -> None:
        """An engine over `matrices` that opens its graphs with `open_session` when first used."""
        super().__init__(matrices, options, fallback=fallback)
        self._open_session = open_session
        self._sessions: dict[GraphSpec, Session | EngineError] = {}

    def compute(self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        """The product of fp32 `a` with `matrix`; see Engine.compute."""
        pieces = []
        for rows, bucket in row_pieces(a.shape[0]):
            self.ledger.rows(padded=bucket - (rows.stop - rows.start))
            pieces.append(self._bucket(matrix, direction, a[rows], bucket))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def close(self) -> None:
        """Also let go of the sessions."""
        super().close()
        self._sessions.clear()

    def _bucket(
        self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor, bucket: int
    ) -> torch.Tensor:
        """The product for rows that fit `bucket`, over all ranges of output and contraction."""
        N, K = matrix.shape
        forward = direction == "forward"
        host_scale = matrix.host_scale
        scale = None if host_scale is None else torch.from_numpy(host_scale.copy())
        result = a.new_zeros(a.shape[0], N if forward else K)
        output_channels = ranges(N, LARGEST_OUTPUT_CHANNELS)
        input_channels = ranges(K, LARGEST_INPUT_CHANNELS)
        contracted, produced = (
            (input_channels, output_channels) if forward else (output_channels, input_channels)
        )
        for source in contracted:
            operand = a[:, source]
            if scale is not None and not forward:
                operand = operand * scale[source]
            protected = protect_rows(operand, matrix=matrix.name, direction=direction)
            for target in produced:
                codes = _weight_input(matrix, *((target, source) if forward else (source, target)))
                rows, columns = codes.shape
                format: InputFormat = "int8" if matrix.format == "int8" else "fp16"
                spec = GraphSpec(format, direction, N=rows, K=columns, M=bucket)
                part = self._run(spec, codes, protected)
                if part is None:
                    self.ledger.repeat(self.name, matrix.name, direction)
                    lower = protect_rows(
                        operand, matrix=matrix.name, direction=direction, lower=_REPEAT_LOWER
                    )
                    part = self._run(spec, codes, lower)
                if part is None:
                    raise ProductError("the result is not finite, at 2**-6 of the scale either")
                result[:, target] += part
        if scale is not None and forward:
            result *= scale
        return result

    def _run(
        self, spec: GraphSpec, codes: npt.NDArray[Any], rows: ProtectedRows
    ) -> torch.Tensor | None:
        """The graph's result for the given rows, in fp32; None if fp16 could not hold it."""
        count = rows.half.shape[0]
        padded = rows.half.new_zeros(spec.operand_shape)
        padded[:count] = rows.half
        session = self._session(spec)
        try:
            (output,) = session.run(
                [RESULT], {OPERAND: padded.numpy(), WEIGHT: np.ascontiguousarray(codes)}
            )
        except Exception as error:  # onnxruntime's errors share no base class
            raise ProductError(f"the graph failed: {one_line(error)}") from error
        result = torch.from_numpy(output)[:count].float()
        # Exact: the sum of fp16 values can't overflow fp32.
        return rows.restore(result) if result.sum().isfinite() else None

    def _session(self, spec: GraphSpec) -> Session:
        """The graph's session; a graph that failed to open is not tried again."""
        if spec not in self._sessions:
            try:
                self._sessions[spec] = self._open_session(build_graph(spec))
            except EngineError as error:
                self._sessions[spec] = error
        session = self._sessions[spec]
        if isinstance(session, EngineError):
            raise ProductError(str(session)) from session
        return session


def _weight_input(matrix: FrozenMatrix, rows: slice, columns: slice) -> npt.NDArray[Any]:
    """A part of the weight as a graph takes it: int8 codes, or fp16, to which 4 bits are unpacked.

    No graph input can be 4 bits wide; the host's dequantizer serves both directions.
    """
    if matrix.format not in BLOCK_FORMATS:
        return matrix.codes[rows, columns]
    part = matrix.take(rows)
    assert part.scale is not None
    return dequantize_blocks(part.codes, part.scale, part.offset)[:, columns]
