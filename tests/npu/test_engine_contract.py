"""What every engine must do: the same cases against torch_cpu, onnx_cpu and the HTP emulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from npu.engine import Engine, NonFiniteInput, RequestedEngine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.opening import open_engine
from npu.weights import FrozenMatrix, FrozenWeights, WeightFormat
from tests.npu.conftest import Freeze, random_weight

SHAPES = {"tall": (96, 40), "wide": (24, 136), "head": (40_000, 24), "long": (6, 40_000)}
"""`head` needs three graphs side by side, `long` two whose results are summed or concatenated."""

# Per row against float64 of the same effective weights. fp16 rounds operand and result (2**-11
# each at worst; 4e-4 is the worst row seen); fp32 adds up to 40 000 roundings of 2**-24.
TOLERANCE = {"torch_cpu": 1e-5, "onnx_cpu": 2e-3, "qnn": 2e-3}

ENGINES = ["torch_cpu", "onnx_cpu", pytest.param("qnn", marks=pytest.mark.emulator)]


@pytest.fixture(scope="module", params=["int8", "fp16"])
def weights(request: pytest.FixtureRequest, freeze: Freeze) -> FrozenWeights:
    matrices = {
        name: random_weight(*shape, seed=seed) for seed, (name, shape) in enumerate(SHAPES.items())
    }
    matrices["dyadic"] = dyadic_weight(40, 72)
    return freeze(matrices, request.param)


@pytest.fixture(scope="module", params=ENGINES)
def requested(request: pytest.FixtureRequest) -> RequestedEngine:
    name: RequestedEngine = request.param
    return name


@pytest.fixture(scope="module")
def engine(weights: FrozenWeights, requested: RequestedEngine) -> Iterator[Engine]:
    engine = open_engine(weights, requested, EngineOptions(threads=2))
    report = engine.report()
    assert report["engine"] == requested, report["fallbacks"]
    yield engine
    assert not engine.report()["fallbacks"]
    engine.close()


def dyadic_weight(N: int, K: int) -> np.ndarray[Any, Any]:
    """Weights exact in both formats: int8 codes times 2**-7 times a power of two per row."""
    generator = np.random.default_rng(5)
    codes = generator.integers(-127, 128, (N, K))
    codes[np.arange(N), generator.integers(0, K, N)] = 127
    return np.ldexp(codes.astype(np.float32), generator.integers(-10, -4, (N, 1)))


def rows_of_all_sizes(M: int, width: int) -> torch.Tensor:
    """Rows from 1e-9 to 1e5, shuffled; the second, fifth and every fourth after it are zero."""
    generator = np.random.default_rng(M * 1000 + width)
    sizes = generator.permutation(np.logspace(-9, 5, M)) if M > 1 else np.array([1e-9])
    rows = generator.standard_normal((M, width)) * sizes[:, None]
    rows[1::4] = 0
    return torch.from_numpy(rows.astype(np.float32))


def run(engine: Engine, matrix: str, direction: str, a: torch.Tensor) -> torch.Tensor:
    return engine.forward(matrix, a) if direction == "forward" else engine.input_gradient(matrix, a)


def operand_width(matrix: str, direction: str) -> int:
    N, K = SHAPES[matrix]
    return K if direction == "forward" else N


def effective(matrix: FrozenMatrix) -> np.ndarray[Any, Any]:
    """float64 [N, K], without a rounding of its own."""
    weight = matrix.codes.astype(np.float64)
    if matrix.scale is not None:
        weight *= matrix.scale.astype(np.float64)[:, None] / 128
    return weight


def row_errors(result: torch.Tensor, expected: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Relative error per row; rows expected to be zero must be exactly zero."""
    size = np.linalg.norm(expected, axis=1)
    zero = size == 0
    assert not result.numpy()[zero].any()
    error = np.linalg.norm(result.numpy() - expected, axis=1)
    return error[~zero] / size[~zero]


@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
@pytest.mark.parametrize(
    ("matrix", "M"),
    [
        ("tall", 1),
        ("tall", 7),
        ("tall", 33),
        ("tall", 300),
        ("tall", 520),
        ("wide", 7),
        ("wide", 300),
        ("head", 7),
        ("head", 33),
        ("long", 7),
    ],
)
def test_products_equal_float64_in_every_row(
    engine: Engine, weights: FrozenWeights, matrix: str, direction: str, M: int
) -> None:
    a = rows_of_all_sizes(M, operand_width(matrix, direction))
    W = effective(weights.matrices[matrix])
    expected = a.double().numpy() @ (W.T if direction == "forward" else W)
    result = run(engine, matrix, direction, a)
    assert result.dtype == torch.float32
    assert result.shape == expected.shape
    assert row_errors(result, expected).max() <= TOLERANCE[engine.name]


def test_no_graph_is_larger_than_its_bounds(engine: Engine) -> None:
    """fp16 holds contractions of about 32 000; a graph of a whole vocabulary needs huge scratch."""
    for matrix in ("head", "long"):
        for direction in ("forward", "input_gradient"):
            run(engine, matrix, direction, torch.ones(1, operand_width(matrix, direction)))
    if engine.form == "inputs":
        specs = engine._form._sessions  # type: ignore[attr-defined]
        assert {spec.N for spec in specs if spec.K == 24} == {16_384, 40_000 - 2 * 16_384}
        assert {spec.K for spec in specs if spec.N == 6} == {32_768, 40_000 - 32_768}


@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_rows_far_outside_fp16_survive(
    engine: Engine, weights: FrozenWeights, direction: str
) -> None:
    a = rows_of_all_sizes(8, operand_width("tall", direction))
    a = a / a.norm(dim=1, keepdim=True).clamp(min=1e-30)
    a *= torch.logspace(-30, 30, 8)[:, None]
    W = effective(weights.matrices["tall"])
    expected = a.double().numpy() @ (W.T if direction == "forward" else W)
    result = run(engine, "tall", direction, a)
    assert row_errors(result, expected).max() <= TOLERANCE[engine.name]


@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_no_rows_give_no_rows(engine: Engine, direction: str) -> None:
    result = run(engine, "tall", direction, torch.empty(0, operand_width("tall", direction)))
    N, K = SHAPES["tall"]
    assert result.shape == (0, N if direction == "forward" else K)


def test_both_directions_read_the_same_effective_weights(
    engine: Engine, weights: FrozenWeights
) -> None:
    """Unit rows read out every entry; scales are powers of two, so that fp16 rounds nothing."""
    matrix = weights.matrices["dyadic"]
    N, K = matrix.shape
    forwards = engine.forward("dyadic", torch.eye(K)).T
    backwards = engine.input_gradient("dyadic", torch.eye(N))
    assert torch.equal(forwards, backwards)
    assert np.array_equal(forwards.numpy(), matrix.dequantize())
    assert np.array_equal(forwards.numpy(), effective(matrix))


def test_general_weights_read_forwards(engine: Engine, weights: FrozenWeights) -> None:
    """int8: the scale is applied on the host, after fp16, so that no entry differs by an ulp."""
    matrix = weights.matrices["wide"]
    forwards = engine.forward("wide", torch.eye(matrix.shape[1])).T.numpy()
    if matrix.format == "int8" or engine.name == "torch_cpu":
        assert np.array_equal(forwards, matrix.dequantize())
    else:
        # Row protection turns 1 into 0.5; half of an entry below 2**-13 is subnormal in fp16.
        np.testing.assert_allclose(forwards, matrix.dequantize(), rtol=0, atol=2**-24)


def test_general_weights_read_backwards(engine: Engine, weights: FrozenWeights) -> None:
    """As forwards, bit for bit, but for int8 in fp16: there `dy * scale` is rounded to 11 bits."""
    matrix = weights.matrices["wide"]
    forwards = engine.forward("wide", torch.eye(matrix.shape[1])).T.numpy()
    backwards = engine.input_gradient("wide", torch.eye(matrix.shape[0])).numpy()
    if matrix.format == "fp16" or engine.name == "torch_cpu":
        assert np.array_equal(backwards, forwards)
    else:
        # two roundings of 2**-11 each: the row of dy, and the result
        np.testing.assert_allclose(backwards, forwards, rtol=2**-10, atol=0)


@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_the_same_call_gives_the_same_bits(engine: Engine, direction: str) -> None:
    a = rows_of_all_sizes(33, operand_width("tall", direction))
    first = run(engine, "tall", direction, a)
    kept = first.clone()
    assert torch.equal(first, run(engine, "tall", direction, a))
    assert torch.equal(first, kept), "a result must not be overwritten by the next product"


@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_operands_are_left_alone_and_may_be_strided(engine: Engine, direction: str) -> None:
    a = rows_of_all_sizes(7, operand_width("wide", direction))
    before = a.clone()
    result = run(engine, "wide", direction, a)
    assert torch.equal(a, before)
    assert torch.equal(run(engine, "wide", direction, a.T.contiguous().T), result)


@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_input_that_is_not_finite_is_refused_by_name(
    engine: Engine, direction: str, bad: float
) -> None:
    a = rows_of_all_sizes(7, operand_width("tall", direction))
    a[5, 3] = bad
    with pytest.raises(NonFiniteInput, match=f"'tall', {direction}"):
        run(engine, "tall", direction, a)


def test_a_sum_that_overflows_is_not_taken_for_infinity(
    engine: Engine, weights: FrozenWeights
) -> None:
    a = torch.from_numpy(np.random.default_rng(1).random((520, SHAPES["tall"][1]), np.float32))
    a *= 1e35
    assert a.sum().isinf()
    expected = a.double().numpy() @ effective(weights.matrices["tall"]).T
    assert row_errors(engine.forward("tall", a), expected).max() <= TOLERANCE[engine.name]


def test_wrong_operands_are_refused(engine: Engine) -> None:
    N, K = SHAPES["tall"]
    with pytest.raises(ValueError, match=rf"'tall', forward: expected float32 \[M, {K}\]"):
        engine.forward("tall", torch.zeros(3, N))
    with pytest.raises(ValueError, match=rf"input_gradient: expected float32 \[M, {N}\]"):
        engine.input_gradient("tall", torch.zeros(3, K))
    with pytest.raises(ValueError, match="float64"):
        engine.forward("tall", torch.zeros(3, K, dtype=torch.float64))
    with pytest.raises(KeyError, match="layers\\.7"):
        engine.forward("layers.7.mlp.down_proj", torch.zeros(3, K))


def test_no_graph_is_kept_for_autograd(engine: Engine) -> None:
    x = torch.zeros(3, SHAPES["tall"][1], requires_grad=True)
    assert not engine.forward("tall", x).requires_grad


def test_report_counts_every_product(weights: FrozenWeights, requested: RequestedEngine) -> None:
    engine = open_engine(weights, requested, EngineOptions(threads=2))
    N, K = SHAPES["tall"]
    engine.forward("tall", torch.ones(7, K))
    engine.forward("tall", torch.ones(33, K))
    engine.forward("tall", torch.ones(33, K), recompute=True)
    engine.input_gradient("tall", torch.ones(520, N))
    engine.input_gradient("tall", torch.empty(0, N))
    report = engine.report()
    json.dumps(report, allow_nan=False)
    assert report["requested"] == report["engine"] == requested
    assert report["why"] == "asked for by name"
    assert report["form"] == ("codes" if requested == "torch_cpu" else "inputs")
    assert ("emulator" in report["device"]) == (requested == "qnn")
    assert report["threads"] == torch.get_num_threads() == 2
    assert report["products"] == {requested: {"forward": 2, "recompute": 1, "input_gradient": 2}}
    assert all(0 < seconds < 60 for seconds in report["seconds"][requested].values())
    assert set(report["seconds"]) == {requested}
    padded = 0 if requested == "torch_cpu" else 1 + 31 + 31 + 0 + (512 + 8 - 520)
    assert report["rows"] == {"given": 7 + 33 + 33 + 520, "padded": padded}
    assert report["fallbacks"] == []
    assert report["repeats"] == []
    versions = {"torch", "numpy", "cpu"}
    if requested != "torch_cpu":
        versions |= {"onnxruntime"}
    if requested == "qnn":
        versions |= {"onnxruntime-qnn"}
    assert set(report["versions"]) == versions
    assert "unknown" not in report["versions"].values()


def test_close_lets_go_of_the_weights(freeze: Freeze, requested: RequestedEngine) -> None:
    engine = open_engine(freeze({"m": random_weight(6, 10, 0)}, "int8"), requested)
    engine.close()
    with pytest.raises(KeyError, match="must be open"):
        engine.forward("m", torch.ones(1, 10))


@pytest.mark.parametrize(
    ("entry", "repeats", "fallbacks"),
    [
        pytest.param(300.0, 1, 0, id="held-at-a-lower-scale"),
        pytest.param(60_000.0, 1, 1, id="computed-on-torch"),
    ],
)
def test_results_beyond_fp16_are_made_good_and_counted(
    requested: RequestedEngine, entry: float, repeats: int, fallbacks: int
) -> None:
    """fp16 weights may be large; 0.75 * entry * 400 overflows fp16, once or at 2**-6 as well."""
    format: WeightFormat = "fp16"
    codes = np.full((6, 400), entry, dtype=np.float16)
    matrix = FrozenMatrix("large", format, codes, None)
    torch_cpu = create_engine("torch_cpu", {"large": matrix}, EngineOptions(threads=2))
    engine = (
        torch_cpu
        if requested == "torch_cpu"
        else create_engine(
            requested, {"large": matrix}, EngineOptions(threads=2), fallback=torch_cpu
        )  # type: ignore[arg-type]
    )
    x = torch.full((3, 400), 3.0)
    result = engine.forward("large", x)
    expected = x.double().numpy() @ effective(matrix).T
    assert row_errors(result, expected).max() <= TOLERANCE[requested]
    report = engine.report()
    if requested == "torch_cpu":
        assert report["fallbacks"] == report["repeats"] == []
        return
    assert report["repeats"] == [
        {"engine": requested, "matrix": "large", "direction": "forward", "count": repeats}
    ]
    assert len(report["fallbacks"]) == fallbacks
    for fallback in report["fallbacks"]:
        assert fallback["engine"] == requested
        assert fallback["matrix"] == "large"
        assert fallback["direction"] == "forward"
        assert "not finite" in fallback["cause"]
        assert report["products"]["torch_cpu"]["forward"] == 1
        assert report["products"][requested]["forward"] == 0
