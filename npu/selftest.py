"""The numerical self-test an engine passes before use; `python -m npu.selftest --engine qnn`.

Several graph forms compile for the NPU and compute something else. What tells them apart is a
weight that is neither square nor symmetric, with the lowest code, negative scales and a block of
zeros in it, and a second one of the same shape; both directions, rows of very different sizes, a
row of zeros, and a number of rows that is no bucket. These weights get an engine of their own, of
the same form; then both ends of each table of the engine itself are tried.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn, get_args

import numpy as np
import torch

from npu.engine import Engine, RequestedEngine
from npu.engine_choice import choose_engine
from npu.engine_options import EngineOptions, RequestedForm
from npu.engines.create import create_engine
from npu.engines.graph_engine import GraphEngine
from npu.errors import EngineError, NonFiniteInput, ProductError
from npu.forms.form import Piece
from npu.frozen_matrix import FrozenMatrix
from npu.htp import SOCS, soc_of_part
from npu.ledger import Direction
from npu.quantize import quantize
from npu.weight_layout import BLOCK_FORMATS, WeightFormat

_N, _K = 80, 96
_ROW_SIZES = (*np.logspace(-9, 5, 12), 0.0)
"""Largest gradients and activations seen, and what fp16 alone can't hold, on both ends."""

FP16_TOLERANCE = 2e-3
"""Relative error of a row: operand and result are rounded to fp16 (at worst 2**-11 = 4.9e-4 each);
6e-4 is the worst row measured, and a wrong form is off by 0.1 or more."""

FP32_TOLERANCE = 1e-5
"""Relative error of a row in fp32: a sum of 80 terms, each rounded at 2**-24 = 6e-8."""


@dataclass(frozen=True)
class SelfTestCase:
    """The outcome for one weight format and direction."""

    format: WeightFormat
    direction: Direction
    rows: int
    worst: float | None
    """Largest relative error of a row; None if the result was not even finite."""
    tolerance: float
    passed: bool


def check_engine(engine: Engine) -> None:
    """Raise EngineError naming the first thing that `engine`, or one made like it, gets wrong.

    The books of `engine` are left as they are.
    """
    matrices = selftest_matrices({matrix.format for matrix in engine.matrices.values()})
    form: RequestedForm = "auto"
    if isinstance(engine, GraphEngine):
        form = engine.graphs.name
    # Fewer rows than the self-test has: they are cut, and the last are padded.
    options = replace(engine.options, form=form, buckets=engine.options.buckets[:1])
    alike = create_engine(engine.name, matrices, options)
    cases = run_selftest(alike, matrices)
    alike.close()
    for case in cases:
        if not case.passed:
            found = "a wrong or non-finite result" if case.worst is None else f"{case.worst:.1e}"
            raise EngineError(
                f"the self-test ({case.format}, {case.direction}) expected an error of at most "
                f"{case.tolerance:.0e} in every row, found {found}"
            )
    if isinstance(engine, GraphEngine):
        for piece in engine.graphs.samples():
            _check_piece(engine, piece)


def selftest_matrices(formats: Collection[WeightFormat]) -> dict[str, FrozenMatrix]:
    """Two weights [80, 96] of each format; what an engine must be opened with to be tested."""
    return {
        f"self-test {format} {number}": _test_matrix(format, number)
        for format in sorted(formats)
        for number in range(2)
    }


def run_selftest(engine: Engine, matrices: Mapping[str, FrozenMatrix]) -> list[SelfTestCase]:
    """Compare `engine`, opened with `matrices`, with float64: a case a format and direction.

    Raises EngineError if a product can't be computed at all.
    """
    cases = []
    for format in sorted({matrix.format for matrix in matrices.values()}):
        alike = [matrix for matrix in matrices.values() if matrix.format == format]
        for direction in get_args(Direction):
            try:
                worst = [_worst(engine, matrix, direction) for matrix in alike]
            except (ProductError, NonFiniteInput) as error:
                raise EngineError(
                    f"the self-test ({format}, {direction}) could not run: {error}"
                ) from error
            cases.append(_case(engine, format, direction, worst))
    return cases


def _test_matrix(format: WeightFormat, number: int) -> FrozenMatrix:
    generator = np.random.default_rng(20 + number)
    row_sizes = np.exp(generator.standard_normal((_N, 1)))
    weight = (generator.standard_normal((_N, _K)) * row_sizes / np.sqrt(_K)).astype(np.float32)
    quantized = quantize(weight, format)
    scale = quantized.scale
    if format in BLOCK_FORMATS and scale is not None:
        scale = scale.copy()
        scale[::3] *= -1
        scale[1, 0] = 0
    name = f"self-test {format} {number}"
    return FrozenMatrix(name, format, quantized.codes, scale, quantized.offset)


def _worst(engine: Engine, matrix: FrozenMatrix, direction: Direction) -> float | None:
    forward = direction == "forward"
    weight = matrix.dequantize().astype(np.float64)
    generator = np.random.default_rng(21)
    sizes = np.array(_ROW_SIZES)[:, None]
    width = matrix.shape[1 if forward else 0]
    operand = (generator.standard_normal((len(sizes), width)) * sizes).astype(np.float32)
    expected = operand.astype(np.float64) @ (weight.T if forward else weight)
    result = engine.compute(matrix, direction, torch.from_numpy(operand)).numpy()
    return _worst_row(result, expected)


def _case(
    engine: Engine, format: WeightFormat, direction: Direction, worst: list[float | None]
) -> SelfTestCase:
    errors = [error for error in worst if error is not None]
    largest = max(errors) if len(errors) == len(worst) else None
    tolerance = FP32_TOLERANCE if engine.form == "codes" else FP16_TOLERANCE
    return SelfTestCase(
        format=format,
        direction=direction,
        rows=len(_ROW_SIZES),
        worst=largest,
        tolerance=tolerance,
        passed=largest is not None and largest <= tolerance,
    )


def _check_piece(engine: GraphEngine, piece: Piece) -> None:
    """The graph's own product with a piece of the model, in both directions. Raises EngineError."""
    weight = piece.weight()
    for direction in get_args(Direction):
        forward = direction == "forward"
        rows = (engine.options.buckets[0], piece.shape[1 if forward else 0])
        operand = np.random.default_rng(22).standard_normal(rows, np.float32).astype(np.float16)
        expected = operand.astype(np.float32) @ (weight.T if forward else weight)
        what = f"the check of '{piece.matrix.name}' in its table ({direction})"
        try:
            result = engine.graphs.run(piece, direction, operand).astype(np.float32)
        except ProductError as failure:
            raise EngineError(f"{what} could not run: {failure}") from failure
        # Of all rows together, which are of one size: of a few sums, one may be near zero.
        error = float(np.linalg.norm(result - expected) / (np.linalg.norm(expected) or 1.0))
        if not error <= FP16_TOLERANCE:
            raise EngineError(
                f"{what} expected an error of at most {FP16_TOLERANCE:.0e}, found {error:.1e}"
            )


def _worst_row(result: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float | None:
    """Largest relative error of a row; a row that must be zero counts with its absolute error."""
    if result.shape != expected.shape or not np.isfinite(result).all():
        return None
    size = np.linalg.norm(expected, axis=1)
    error = np.linalg.norm(result - expected, axis=1) / np.where(size > 0, size, 1.0)
    return float(error.max())


def _report(requested: RequestedEngine, options: EngineOptions) -> dict[str, Any]:
    name, why = choose_engine(requested)
    report: dict[str, Any] = {"requested": requested, "engine": name, "why": why}
    started = time.perf_counter()
    matrices = selftest_matrices(get_args(WeightFormat))
    try:
        engine = create_engine(name, matrices, options)
        cases = run_selftest(engine, matrices)
    except EngineError as error:
        return report | {"passed": False, "cause": str(error), "cases": []}
    return report | {
        "passed": all(case.passed for case in cases),
        "cause": None,
        "form": engine.form,
        "form_why": engine.form_why,
        "device": engine.device,
        "soc": engine.report().get("soc") or (options.soc and options.soc.part),
        "versions": engine.versions(),
        "seconds": time.perf_counter() - started,
        "cases": [asdict(case) for case in cases],
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the self-test's outcome as JSON; 0 if the engine passed, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m npu.selftest", description=main.__doc__)
    parser.add_argument("--engine", choices=get_args(RequestedEngine), default="auto")
    parser.add_argument("--form", choices=get_args(RequestedForm), default="auto")
    parser.add_argument("--soc", choices=[soc.part for soc in SOCS], help="compile for this one")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    options = EngineOptions(
        threads=given.threads,
        form=given.form,
        soc=None if given.soc is None else soc_of_part(given.soc),
    )
    # Native libraries print to descriptor 1; standard output is for the report alone.
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        report = _report(given.engine, options)
    finally:
        os.dup2(output, 1)
        os.close(output)
    print(json.dumps(report, indent=2))
    return 0 if report["passed"] else 1


def leave(code: int) -> NoReturn:
    """End this process at once: an NPU library that failed may crash when it is unloaded."""
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
