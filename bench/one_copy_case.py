"""One context of `bench.one_copy`: built, measured and tried in this process, which then ends.

    python -m bench.one_copy_case JSON

Prints one JSON line: bytes, spill_bytes, graphs, errors of y and dx, device and versions; or the
failure.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from bench.one_copy_shapes import Shape
from bench.one_copy_static import STATIC_FORMS, StaticForm, gemm_pair, static_product
from bench.one_copy_table import build
from bench.static_context import StaticContext
from npu.errors import one_line
from npu.forms.form import Piece
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.pieces import BUCKETS
from npu.quantize import CODE_STEP, quantize
from npu.sessions import HtpSessions, onnxruntime_versions
from npu.weight_layout import WeightFormat

OUR_FORMS: tuple[WeightFormat, ...] = get_args(WeightFormat)
Form = Literal["static_fp16", "static_a16w8", "static_a16w4", "fp16", "int8", "int4", "int4_min"]
FORMS: tuple[Form, ...] = (*STATIC_FORMS, *OUR_FORMS)

Scope = Literal["forward", "both", "all_buckets"]

ROWS = 32
"""Rows of the graphs that aren't for all buckets."""

LARGEST_TRIED = 5_000_000
"""Parameters of the largest static weight whose results are checked: the emulator takes 16-bit
activations through 0.06 GFLOP/s. Our own pieces are all smaller."""

_DIRECTIONS: dict[Scope, tuple[Direction, ...]] = {
    "forward": ("forward",),
    "both": ("forward", "input_gradient"),
    "all_buckets": ("forward", "input_gradient"),
}


@dataclass(frozen=True)
class Case:
    """What one context holds."""

    form: Form | Literal["gemm_pair"]
    scope: Scope
    model: str
    shape: str | None
    """The only shape in it; None for the whole cut model."""
    shapes: tuple[Shape, ...]

    @property
    def parameters(self) -> int:
        """Weights in the context."""
        return sum(shape.parameters for shape in self.shapes)

    @classmethod
    def from_json(cls, text: str) -> Case:
        """The inverse of json.dumps(asdict(case))."""
        members = json.loads(text)
        return cls(**{**members, "shapes": tuple(Shape(**s) for s in members["shapes"])})


@dataclass(frozen=True, eq=False)
class Weight:
    """One random weight of a case."""

    name: str
    values: npt.NDArray[np.float32]
    last: bool
    """Whether it is the last layer of its shape, whose place in a table is the hardest to find."""


def weights(case: Case) -> Iterator[Weight]:
    """The case's weights one by one, the same in every process."""
    generator = np.random.default_rng(0)
    for shape in case.shapes:
        for layer in range(shape.layers):
            values = generator.standard_normal((shape.N, shape.K), np.float32)
            values /= np.float32(np.sqrt(shape.K))
            yield Weight(f"{layer}.{shape.name}", values, layer == shape.layers - 1)


def operand(columns: int, rows: int = ROWS) -> npt.NDArray[np.float32]:
    """Rows as row protection leaves them: the largest magnitude of each is below 1."""
    a = np.random.default_rng(1).standard_normal((rows, columns), np.float32)
    protected: npt.NDArray[np.float32] = a / (1.01 * np.abs(a).max(axis=1, keepdims=True))
    return protected


def relative_error(found: npt.NDArray[Any], expected: npt.NDArray[np.float64]) -> float:
    """Of the Frobenius norm. Raises ValueError if the result isn't finite."""
    if not np.isfinite(found).all():
        raise ValueError("expected finite results, found others")
    return float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected))


def measure_table(case: Case, form: WeightFormat) -> dict[str, Any]:
    """Our way, as training runs it: tables of all weights, the last piece of each one tried."""
    matrices, last = [], {}
    for weight in weights(case):
        quantized = quantize(weight.values, form)
        matrix = FrozenMatrix(weight.name, form, quantized.codes, quantized.scale, quantized.offset)
        matrices.append(matrix)
        if weight.last:
            last[matrix.shape] = matrix
    sessions = HtpSessions()
    buckets = BUCKETS if case.scope == "all_buckets" else (ROWS,)
    table = build(matrices, buckets, sessions, forward_only=case.scope == "forward")
    errors = Errors()
    for matrix in last.values() if case.scope != "all_buckets" else ():
        rows, columns = table.cut(matrix)
        piece = Piece(matrix, rows[-1], columns[-1])
        W = _inside_the_graph(matrix, piece)
        for direction in _DIRECTIONS[case.scope]:
            a = operand(W.shape[direction == "forward"]).astype(np.float16)
            found = table.run(piece, direction, a)
            expected = a.astype(np.float64) @ (W.T if direction == "forward" else W)
            errors.add(direction, relative_error(found, expected))
    context = table.report()["context"]
    return {
        "bytes": context["bytes"],
        "spill_bytes": context["spill_bytes"],
        "graphs": context["graphs"],
        "errors": errors.worst,
        "device": sessions.device,
        "versions": onnxruntime_versions(qnn=True),
    }


def _inside_the_graph(matrix: FrozenMatrix, piece: Piece) -> npt.NDArray[np.float64]:
    """The effective weights of a piece without the host's scale, fp64 [N, K]."""
    part = matrix.take(piece.rows)
    bare = dataclasses.replace(part, scale=None) if matrix.format == "int8" else part
    values = bare.dequantize().astype(np.float64)[:, piece.columns]
    inside: npt.NDArray[np.float64] = values * (CODE_STEP if matrix.format == "int8" else 1.0)
    return inside


def measure_static(case: Case, form: StaticForm, folder: Path) -> dict[str, Any]:
    """The ordinary way: every weight is a constant of one graph a direction."""
    products, checked = [], []
    for weight in weights(case):
        for direction in _DIRECTIONS[case.scope]:
            N, K = weight.values.shape
            a = operand(K if direction == "forward" else N)
            product = static_product(form, direction, weight.values, a)
            products.append(product.model)
            if weight.last and weight.values.size <= LARGEST_TRIED:
                checked.append((len(products) - 1, direction, product))
    context = StaticContext(products, folder)
    errors = Errors()
    for number, direction, product in checked:
        (found,) = context.sessions[number].run(["result"], {"a": product.operand})
        errors.add(direction, relative_error(found, product.expected))
    return {
        "bytes": context.bytes,
        "spill_bytes": context.spill_bytes,
        "graphs": len(products),
        "errors": errors.worst,
    }


def measure_gemm_pair(case: Case, folder: Path) -> dict[str, Any]:
    """Gemm transB=1 and transB=0 on one constant, in one graph."""
    (weight,) = weights(case)
    W = weight.values.astype(np.float16)
    x, dy = (operand(size).astype(np.float16) for size in (W.shape[1], W.shape[0]))
    context = StaticContext([gemm_pair(W, ROWS)], folder)
    y, dx = context.sessions[0].run(["y", "dx"], {"x": x, "dy": dy})
    exact = W.astype(np.float64)
    return {
        "bytes": context.bytes,
        "spill_bytes": context.spill_bytes,
        "graphs": 1,
        "errors": {"y": relative_error(y, x @ exact.T), "dx": relative_error(dx, dy @ exact)},
    }


class Errors:
    """The worst relative errors seen, by result."""

    def __init__(self) -> None:
        """None seen."""
        self.worst: dict[str, float] = {}

    def add(self, direction: Direction, error: float) -> None:
        """One more."""
        name = "y" if direction == "forward" else "dx"
        self.worst[name] = max(self.worst.get(name, 0.0), error)


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Build the case's context in `folder` and try it."""
    if case.form == "gemm_pair":
        return measure_gemm_pair(case, folder)
    if case.form == "static_fp16" or case.form == "static_a16w8" or case.form == "static_a16w4":
        return measure_static(case, case.form, folder)
    return measure_table(case, case.form)


def main() -> None:
    case = Case.from_json(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="lorad-one-copy-") as folder:
        try:
            found = measure(case, Path(folder))
        except Exception as error:  # onnxruntime's errors share no base class
            found = {"failure": one_line(error)}
    print(json.dumps(found), flush=True)
    # A context that failed to build crashes in its destructors.
    os._exit(0)


if __name__ == "__main__":
    main()
