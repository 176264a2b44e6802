"""How a weight reaches the graph that multiplies by it: one interface, two forms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from npu.engine_options import FormName
from npu.errors import ProductError, one_line
from npu.frozen_matrix import FrozenMatrix
from npu.graphs import RESULT
from npu.ledger import Direction
from npu.sessions import Session

Half = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Piece:
    """The part of a weight that one graph multiplies by."""

    matrix: FrozenMatrix
    rows: slice
    """Output channels, both ends given."""
    columns: slice
    """Input channels, both ends given."""

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K) of the part."""
        return (self.rows.stop - self.rows.start, self.columns.stop - self.columns.start)

    def weight(self) -> npt.NDArray[np.float32]:
        """Effective weights fp32 [N, K], without the host scale."""
        part = self.matrix.take(self.rows)
        if part.host_scale is not None:
            part = replace(part, scale=np.ones_like(part.host_scale))
        return part.dequantize()[:, self.columns]


class Cut(NamedTuple):
    """The ranges of a weight's channels; every pair of a row and a column range is a piece."""

    rows: Sequence[slice]
    columns: Sequence[slice]


class Form(ABC):
    """Runs fp16 products of pieces; what it knows beyond that is how their weights get there."""

    name: ClassVar[FormName]

    @abstractmethod
    def cut(self, matrix: FrozenMatrix) -> Cut:
        """The pieces of `matrix` that this form has graphs for."""

    @abstractmethod
    def run(self, piece: Piece, direction: Direction, operand: Half) -> Half:
        """The product of `operand` [M, K] or [M, N] with `piece`: [M, N] or [M, K]; M is a bucket.

        The weight lacks its host scale. Overflow is an infinity or NaN in the result.
        Raises ProductError.
        """

    def samples(self) -> Iterable[Piece]:
        """Pieces that show whether the graphs hold the weights they should."""
        return ()

    def report(self) -> dict[str, Any]:
        """What there is to say beyond the form's name, as entries of the engine's report."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Let go of sessions and weights."""


def run_session(session: Session, feeds: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The graph's result, of its own type. Raises ProductError."""
    try:
        (result,) = session.run([RESULT], feeds)
    except Exception as error:  # onnxruntime's errors share no base class
        raise ProductError(f"the graph failed: {one_line(error)}") from error
    array: npt.NDArray[Any] = result
    return array
