"""At the ends of what the numbers on an engine can hold, in every form: nothing silently wrong.

The bound: a protected row has entries of at most 1, so that a result is at most C times the largest
weight after C terms; fp16 holds 65 504. Weights up to 1 (every int8 code) can't overflow at C up to
32 768, and repeated 2**-6 smaller neither can weights up to 127.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.frozen_matrix import FrozenMatrix
from npu.quantize_blocks import pack
from npu.weight_layout import WeightFormat

TORCH = pytest.param(("torch_cpu", "auto"), id="torch_cpu")
ONNX = [pytest.param(("onnx_cpu", form), id=f"onnx_cpu-{form}") for form in ("inputs", "table")]
QNN = [
    pytest.param(("qnn", form), id=f"qnn-{form}", marks=pytest.mark.emulator)
    for form in ("inputs", "table")
]

# 4-bit weights take the emulator seconds; what bounds them is the end of the same graph.
LONGEST = [
    *((where, format) for where in ONNX for format in ("int8", "fp16", "int4", "int4_min")),
    *((where, format) for where in QNN for format in ("int8", "fp16")),
]
LARGE = [
    *((where, format) for where in ONNX for format in ("fp16", "int4", "int4_min")),
    (QNN[0], "fp16"),
]


def crossed(pairs: list[tuple[Any, str]]) -> list[Any]:
    return [
        pytest.param(where.values[0], format, id=f"{where.id}-{format}", marks=where.marks)
        for where, format in pairs
    ]


def constant_matrix(format: WeightFormat, N: int, K: int, weight: float) -> FrozenMatrix:
    """Every entry `weight`, which the format holds exactly."""
    if format == "fp16":
        return FrozenMatrix("m", format, np.full((N, K), weight, np.float16), None)
    if format == "int8":
        scale = np.full(N, weight * 128 / 127, np.float32)
        return FrozenMatrix("m", format, np.full((N, K), 127, np.int8), scale)
    codes = np.full((N, K), -8, np.int8)
    scale = np.full((N, K // 32), -weight / 8, np.float16)
    offset = None
    if format == "int4_min":
        scale /= 2
        offset = np.full((N, K // 32), weight / 2, np.float16)
    return FrozenMatrix("m", format, pack(codes), scale, offset)


def opened(name: str, form: str, matrix: FrozenMatrix) -> Engine:
    options = EngineOptions(threads=2, form=form, buckets=(8,))  # type: ignore[arg-type]
    fallback = None if name == "torch_cpu" else create_engine("torch_cpu", {"m": matrix}, options)
    return create_engine(name, {"m": matrix}, options, fallback=fallback)  # type: ignore[arg-type]


def product(engine: Engine, direction: str, a: torch.Tensor) -> torch.Tensor:
    return engine.forward("m", a) if direction == "forward" else engine.input_gradient("m", a)


def check(
    engine: Engine, direction: str, a: torch.Tensor, expected: Any, tolerance: float = 1e-3
) -> dict[str, Any]:
    found = product(engine, direction, a).double().numpy()
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=tolerance)
    report = engine.report()
    assert report["fallbacks"] == []
    engine.close()
    return report


@pytest.mark.parametrize(("where", "format"), crossed(LONGEST))
def test_the_longest_contraction_of_the_largest_entries_fits(
    where: tuple[str, str], format: WeightFormat
) -> None:
    """Entries that fp16 rounds up to 1, weights of 1, all of one sign: 32 768 terms."""
    K = 32_768
    engine = opened(*where, constant_matrix(format, 2, K, 1.0))
    x = torch.full((1, K), 1 - 2.0**-24)
    assert check(engine, "forward", x, K)["repeats"] == []


@pytest.mark.parametrize("where", [*ONNX, *QNN])
@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_a_vocabulary_is_summed_in_chunks(where: tuple[str, str], direction: str) -> None:
    N, K = 151_936, 32
    engine = opened(*where, constant_matrix("int8", N, K, 1.0))
    a = torch.full((2, K if direction == "forward" else N), 1 - 2.0**-24)
    a[1] *= -3e-9
    expected = a[:, :1].double().numpy() * a.shape[1]
    assert check(engine, direction, a, expected)["repeats"] == []


@pytest.mark.parametrize(("where", "format"), crossed(LARGE))
@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_weights_up_to_127_fit_when_repeated(
    where: tuple[str, str], format: WeightFormat, direction: str
) -> None:
    """Only int8 codes are below 1 by themselves; 112 is far beyond the weights of any model."""
    length = 32_768 if direction == "forward" else 16_384
    shape = (2, length) if direction == "forward" else (length, 32)
    engine = opened(*where, constant_matrix(format, *shape, 112.0))
    a = torch.full((1, length), 1 - 2.0**-24)
    report = check(engine, direction, a, 112 * length)
    assert len(report["repeats"]) == 1


@pytest.mark.parametrize("where", [TORCH, *ONNX, *QNN])
@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_rows_at_both_ends_of_fp32_are_kept(where: tuple[str, str], direction: str) -> None:
    """1e38, a subnormal row, zeros of both signs, and an ordinary row beside them."""
    random = np.random.default_rng(3)
    W = (random.standard_normal((96, 64)) / 64).astype(np.float16)
    engine = opened(*where, FrozenMatrix("m", "fp16", W, None))
    rows = random.standard_normal((5, 64 if direction == "forward" else 96))
    rows /= np.abs(rows).max(axis=1, keepdims=True)
    a = (rows * np.array([[3e38], [1e-40], [0.0], [-0.0], [1.0]])).astype(np.float32)
    expected = a.astype(np.float64) @ (W.astype(np.float64).T if direction == "forward" else W)
    found = product(engine, direction, torch.from_numpy(a)).double().numpy()
    size = np.linalg.norm(expected, axis=1)
    error = np.linalg.norm(found - expected, axis=1)
    assert (error[[0, 4]] <= 1e-3 * size[[0, 4]]).all()
    # fp32 itself has steps of 2**-149 there, and torch_cpu rounds every sum to them.
    assert np.abs(found[1] - expected[1]).max() <= 16 * 2.0**-149
    assert np.abs(expected[1]).max() > 1000 * 2.0**-149
    assert not found[2:4].any()
    report = engine.report()
    assert report["fallbacks"] == report["repeats"] == []
    engine.close()


@pytest.mark.parametrize("where", [TORCH, *ONNX, QNN[0]])
@pytest.mark.parametrize("format", ["int8", "fp16"])
def test_a_result_beyond_fp32_is_never_finite_and_wrong(
    where: tuple[str, str], format: WeightFormat
) -> None:
    """It is refused as the input of the next product."""
    engine = opened(*where, constant_matrix(format, 64, 96, 1.0))
    x = torch.full((2, 96), 3e38)
    x[1] = 1
    y = engine.forward("m", x)
    assert not y[0].isfinite().any()
    assert torch.allclose(y[1], torch.tensor(96.0), rtol=1e-3)
    with pytest.raises(ValueError, match="'m', input_gradient: expected finite values"):
        engine.input_gradient("m", y)
    engine.close()


@pytest.mark.emulator
@pytest.mark.parametrize("format", ["int8", "fp16"])
def test_a_table_of_large_matrices_compiles(format: WeightFormat) -> None:
    """q_proj of Llama-3.2-1B: gathered as one piece of fp16 it would take 8 MiB, and be refused."""
    engine = opened("qnn", "table", constant_matrix(format, 2048, 2048, 0.5))
    x = torch.full((1, 2048), 1 - 2.0**-24)
    assert check(engine, "forward", x, 1024)["form"] == "table"
