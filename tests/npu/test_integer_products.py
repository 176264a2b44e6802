"""The opt-in: forward products of int8 weights in 16-bit integers, on onnxruntime and the NPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch

from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import EngineError
from npu.frozen_matrix import FrozenMatrix
from npu.graphs import OPERAND, RESULT, WEIGHT
from npu.graphs_int16 import Int16Spec, build_int16_graph, result_step
from npu.integer_products import IntegerProducts
from npu.quantize import quantize
from npu.selftest import check_engine
from npu.sessions import cpu_sessions
from tests.npu.conftest import random_weight

ENGINES = ["onnx_cpu", pytest.param("qnn", marks=pytest.mark.emulator)]

SHAPES = {"tall": (200, 640), "wide": (96, 1600), "head": (17_000, 32), "long": (6, 40_000)}
"""`head` needs two graphs side by side, `long` two whose results are summed."""


def frozen(name: str, W: np.ndarray[Any, Any], format: Any = "int8") -> FrozenMatrix:
    quantized = quantize(W, format)
    return FrozenMatrix(name, format, quantized.codes, quantized.scale, quantized.offset)


MATRICES = {
    **{name: frozen(name, random_weight(*shape, seed=1)) for name, shape in SHAPES.items()},
    "half": frozen("half", random_weight(200, 640, seed=2), "fp16"),
    "blocks": frozen("blocks", random_weight(200, 640, seed=3), "int4"),
}


def opened(name: str, matrices: dict[str, FrozenMatrix], activations: Any = "int16") -> Engine:
    options = EngineOptions(threads=2, form="inputs", buckets=(8, 32), activations=activations)
    fallback = create_engine("torch_cpu", matrices, options)
    return create_engine(name, matrices, options, fallback=fallback)  # type: ignore[arg-type]


def rows(M: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = np.random.default_rng(seed)
    sizes = np.logspace(-9, 5, M)[:, None]
    return torch.from_numpy((generator.standard_normal((M, width)) * sizes).astype(np.float32))


def errors(found: torch.Tensor, matrix: FrozenMatrix, x: torch.Tensor) -> np.ndarray[Any, Any]:
    expected = x.double().numpy() @ matrix.dequantize().astype(np.float64).T
    error: np.ndarray[Any, Any] = np.linalg.norm(found.double().numpy() - expected, axis=1)
    return error / np.linalg.norm(expected, axis=1)


@pytest.mark.parametrize("name", ENGINES)
def test_products_equal_float64_better_than_fp16_would(name: str) -> None:
    engine = opened(name, MATRICES)
    report = engine.report()
    assert (report["form"], report["activations"]) == ("inputs", "int16")
    for matrix in SHAPES:
        x = rows(20, SHAPES[matrix][1])
        found = errors(engine.forward(matrix, x), MATRICES[matrix], x)
        assert found.max() < 2e-3, matrix
        if matrix != "head":  # of 17 000 results of 32 terms some are beyond the first range
            assert np.median(found) < 2e-4, "fp16 has 2.9e-4: the graph isn't one of integers"
    report = engine.report()
    assert report["fallbacks"] == []
    assert "head" in {rails["matrix"] for rails in report["rails"]}
    assert report["products"][name]["forward"] == len(SHAPES)
    engine.close()


@pytest.mark.parametrize("name", ENGINES)
def test_gradients_and_other_formats_are_the_bits_of_fp16(name: str) -> None:
    integers, halves = opened(name, MATRICES), opened(name, MATRICES, "fp16")
    assert halves.report()["activations"] == "fp16"
    x, dy = rows(9, 640), rows(9, 200)
    for matrix in ("half", "blocks"):
        assert torch.equal(integers.forward(matrix, x), halves.forward(matrix, x))
    for matrix in ("tall", "half", "blocks"):
        assert torch.equal(integers.input_gradient(matrix, dy), halves.input_gradient(matrix, dy))
    assert not torch.equal(integers.forward("tall", x), halves.forward("tall", x))
    integers.close()
    halves.close()


@pytest.mark.parametrize("name", ENGINES)
def test_what_reaches_the_rails_is_counted_and_never_returned(name: str) -> None:
    """Row 1 exceeds sqrt(K) / 4, row 2 also eight times that: one is repeated, one becomes fp16."""
    K = 1024
    W = random_weight(40, K, seed=4)
    matrix = frozen("m", W)
    engine = opened(name, {"m": matrix})
    ordinary = rows(1, K) * 1e9
    aligned = torch.from_numpy(np.sign(W[:1]))
    some = aligned.clone()
    some[:, 100:] = 0
    x = torch.cat([ordinary, some, aligned * 1e-7])
    together = engine.forward("m", x)
    assert errors(together, matrix, x).max() < 2e-3
    report = engine.report()
    (rails,) = report["rails"]
    assert rails == {"engine": name, "matrix": "m", "direction": "forward", "count": rails["count"]}
    assert rails["count"] >= 3
    assert [repeat["count"] for repeat in report["repeats"]] == [1]
    assert report["fallbacks"] == []
    alone = engine.forward("m", ordinary)
    assert torch.equal(alone[0], together[0]), "a row must not depend on the rows beside it"
    assert engine.report()["rails"] == report["rails"]
    engine.close()


@pytest.mark.parametrize("name", ENGINES)
def test_the_longest_contraction_of_the_largest_entries(name: str) -> None:
    """The sum of all codes is 2**37: no accumulator may wrap."""
    K = 32_768
    codes = np.full((2, K), 127, np.int8)
    codes[1] *= -1
    matrix = FrozenMatrix("m", "int8", codes, np.full(2, 128 / 127, np.float32))
    engine = opened(name, {"m": matrix})
    y = engine.forward("m", torch.full((1, K), 0.999999))
    np.testing.assert_allclose(y.numpy(), [[K, -K]], rtol=1e-3)
    assert engine.report()["rails"][0]["count"] == 4
    assert engine.report()["fallbacks"] == []
    engine.close()


@pytest.mark.parametrize("name", ENGINES)
def test_rows_at_both_ends_of_fp32(name: str) -> None:
    """No power of two in fp32 brings 3e38 below 1: such a row's operand is at the rails itself."""
    matrix = frozen("m", random_weight(24, 160, seed=5) / 64)
    engine = opened(name, {"m": matrix})
    x = rows(4, 160)
    x /= x.abs().amax(dim=1, keepdim=True)
    x *= torch.tensor([[0.0], [1e-40], [0.0], [1.0]])
    x[0, 3] = 3e38
    y = engine.forward("m", x)
    found = errors(y[[0, 3]], matrix, x[[0, 3]])
    assert found.max() < 1e-3
    assert y[1].abs().max() < 1e-39
    assert not y[2].any()
    with pytest.raises(ValueError, match="'m', forward: expected finite values"):
        engine.forward("m", x * torch.nan)
    engine.close()


@pytest.mark.parametrize("name", ENGINES)
def test_it_passes_the_self_test_of_every_engine(name: str) -> None:
    engine = opened(name, MATRICES)
    check_engine(engine)
    engine.close()


def test_an_npu_whose_sums_wrap_is_refused() -> None:
    class Wrapping:
        def get_providers(self) -> list[str]:
            return []

        def run(self, outputs: Any, feeds: Any) -> list[Any]:
            a, W = feeds[OPERAND].astype(np.int64) - 32768, feeds[WEIGHT].astype(np.int64)
            sums = (a @ W.T).astype(np.int32)  # 32 bits
            step = result_step(W.shape[1])
            codes = np.rint(sums * 2.0**-22 / step) + 32768
            return [np.clip(codes, 0, 65535).astype(np.uint16)]

    with pytest.raises(EngineError, match="stop at its ends"):
        IntegerProducts(lambda model: Wrapping())
    IntegerProducts(cpu_sessions(1)).close()


def test_a_table_has_no_integer_graphs() -> None:
    with pytest.raises(ValueError, match="found table"):
        EngineOptions(form="table", activations="int16")


def test_the_graph_is_valid_and_holds_no_weight() -> None:
    model = onnx.load_model_from_string(build_int16_graph(Int16Spec(N=48, K=80, M=32)))
    onnx.checker.check_model(model, full_check=True)
    assert all(not constant.dims for constant in model.graph.initializer)
    assert [value.name for value in model.graph.input] == [OPERAND, WEIGHT]
    assert [value.name for value in model.graph.output] == [RESULT]
