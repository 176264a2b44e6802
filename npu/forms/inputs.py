"""Form `inputs`: the weight is an input of the graph, handed over with every call."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from npu.engine_options import FormName
from npu.forms.form import Cut, Form, Half, Piece, run_session
from npu.frozen_matrix import FrozenMatrix
from npu.graphs import OPERAND, WEIGHT, GraphSpec, InputFormat, build_graph
from npu.ledger import Direction
from npu.opened_once import OpenedOnce
from npu.pieces import ranges
from npu.quantize_blocks import dequantize_blocks
from npu.sessions import SessionOpener
from npu.weight_layout import BLOCK_FORMATS

_LARGEST_ROWS = 16_384
"""Output channels of one graph: bounds its scratch, and the contraction of the input gradient."""

_LARGEST_COLUMNS = 32_768
"""Input channels of one graph: with |x| < 1 and int8 weights below 1, |y| < K fits fp16."""


class InputsForm(Form):
    """One graph serves all weights of a shape; each is opened when it is first used."""

    name: ClassVar[FormName] = "inputs"

    def __init__(self, open_session: SessionOpener) -> None:
        """Graphs opened with `open_session`."""
        self._session: OpenedOnce[GraphSpec] = OpenedOnce(
            lambda spec: open_session(build_graph(spec))
        )

    def cut(self, matrix: FrozenMatrix) -> Cut:
        """Pieces of at most 16 384 rows and 32 768 columns."""
        N, K = matrix.shape
        return Cut(ranges(N, _LARGEST_ROWS), ranges(K, _LARGEST_COLUMNS))

    def run(self, piece: Piece, direction: Direction, operand: Half) -> Half:
        """The product with the weight as it lies in its file, or dequantised from 4 bits."""
        N, K = piece.shape
        format: InputFormat = "int8" if piece.matrix.format == "int8" else "fp16"
        spec = GraphSpec(format, direction, N=N, K=K, M=operand.shape[0])
        return run_session(self._session(spec), {OPERAND: operand, WEIGHT: _weight_input(piece)})

    def close(self) -> None:
        """Let go of the sessions."""
        self._session.clear()


def _weight_input(piece: Piece) -> npt.NDArray[Any]:
    """The weight as a graph takes it: int8 codes, or fp16, to which 4 bits are unpacked.

    No graph input can be 4 bits wide; the host's dequantizer serves both directions.
    """
    matrix = piece.matrix
    if matrix.format not in BLOCK_FORMATS:
        return np.ascontiguousarray(matrix.codes[piece.rows, piece.columns])
    part = matrix.take(piece.rows)
    assert part.scale is not None
    weight = dequantize_blocks(part.codes, part.scale, part.offset)
    return np.ascontiguousarray(weight[:, piece.columns])
