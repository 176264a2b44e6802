"""What every engine must do, in every form and format: the same cases against torch_cpu, onnx_cpu
and the HTP emulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
import torch

from npu.engine import Engine, NonFiniteInput, RequestedEngine
from npu.engine_options import EngineOptions, RequestedForm
from npu.engines.create import create_engine
from npu.engines.graph_engine import GraphEngine
from npu.opening import open_engine
from npu.weight_layout import BLOCK_FORMATS
from npu.weights import FrozenMatrix, FrozenWeights, WeightFormat
from tests.npu.conftest import Freeze, random_weight

SHAPES = {"tall": (96, 64), "wide": (24, 160), "head": (17_000, 32), "long": (6, 33_024)}
"""`head` needs two pieces side by side, `long` two whose results are summed or concatenated."""

# Per row against float64 of the same effective weights. fp16 rounds operand and result (2**-11
# each at worst; 4e-4 is the worst row seen, 6e-4 with 4-bit weights rounded twice on the NPU); fp32
# adds up to 33 000 roundings of 2**-24.
TOLERANCE = {"torch_cpu": 1e-5, "onnx_cpu": 2e-3, "qnn": 2e-3}

ENGINES = [
    pytest.param(("torch_cpu", "codes"), id="torch_cpu"),
    pytest.param(("onnx_cpu", "inputs"), id="onnx_cpu-inputs"),
    pytest.param(("onnx_cpu", "table"), id="onnx_cpu-table"),
    pytest.param(("qnn", "inputs"), id="qnn-inputs", marks=pytest.mark.emulator),
    pytest.param(("qnn", "table"), id="qnn-table", marks=pytest.mark.emulator),
]

BUCKETS = (8, 32, 512)


def options(form: str) -> EngineOptions:
    asked: RequestedForm = "auto" if form == "codes" else form  # type: ignore[assignment]
    return EngineOptions(threads=2, form=asked, buckets=BUCKETS)


@pytest.fixture(scope="module", params=get_args(WeightFormat))
def weights(request: pytest.FixtureRequest, freeze: Freeze) -> FrozenWeights:
    matrices = {
        name: random_weight(*shape, seed=seed) for seed, (name, shape) in enumerate(SHAPES.items())
    }
    matrices["dyadic"] = dyadic_weight(40, 96)
    return freeze(matrices, request.param)


@pytest.fixture(scope="module", params=ENGINES)
def requested(request: pytest.FixtureRequest) -> tuple[RequestedEngine, str]:
    """An engine and the form it is to have."""
    pair: tuple[RequestedEngine, str] = request.param
    return pair


@pytest.fixture(scope="module")
def engine(weights: FrozenWeights, requested: tuple[RequestedEngine, str]) -> Iterator[Engine]:
    name, form = requested
    engine = open_engine(weights, name, options(form))
    report = engine.report()
    assert (report["engine"], report["form"]) == (name, form), report["fallbacks"]
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
    """float64 [N, K], without a rounding but those that belong to the format."""
    if matrix.format in BLOCK_FORMATS:
        return matrix.dequantize().astype(np.float64)
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


def test_no_graph_is_larger_than_its_bounds(engine: Engine, weights: FrozenWeights) -> None:
    """fp16 holds contractions of about 32 000; a graph of a whole vocabulary needs huge scratch."""
    if not isinstance(engine, GraphEngine):
        return
    rows, columns = engine.graphs.cut(weights.matrices["head"])
    assert max(piece.stop - piece.start for piece in rows) <= 16_384
    assert rows[-1].stop == 17_000
    rows, columns = engine.graphs.cut(weights.matrices["long"])
    assert max(piece.stop - piece.start for piece in columns) <= 32_768
    assert columns[-1].stop == 33_024


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
    if matrix.format not in BLOCK_FORMATS:
        assert np.array_equal(forwards.numpy(), matrix.dequantize())
        assert np.array_equal(forwards.numpy(), effective(matrix))


def test_general_weights_read_forwards(engine: Engine, weights: FrozenWeights) -> None:
    """int8: the scale is applied on the host, after fp16, so that no entry differs by an ulp."""
    matrix = weights.matrices["wide"]
    forwards = engine.forward("wide", torch.eye(matrix.shape[1])).T.numpy()
    expected = matrix.dequantize()
    if matrix.format == "int8" or engine.name == "torch_cpu":
        assert np.array_equal(forwards, expected)
    elif matrix.format == "fp16":
        # Row protection turns 1 into 0.5; half of an entry below 2**-13 is subnormal in fp16.
        np.testing.assert_allclose(forwards, expected, rtol=0, atol=2**-24)
    else:
        # An ulp where the NPU multiplies by the scale, and one where it adds the offset.
        largest = float(np.abs(expected).max())
        np.testing.assert_allclose(forwards, expected, rtol=0, atol=2**-10 * largest)


def test_general_weights_read_backwards(engine: Engine, weights: FrozenWeights) -> None:
    """As forwards, bit for bit, but for int8 in fp16: there `dy * scale` is rounded to 11 bits."""
    matrix = weights.matrices["wide"]
    forwards = engine.forward("wide", torch.eye(matrix.shape[1])).T.numpy()
    backwards = engine.input_gradient("wide", torch.eye(matrix.shape[0])).numpy()
    if matrix.format != "int8" or engine.name == "torch_cpu":
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


def test_report_counts_every_product(
    freeze: Freeze, requested: tuple[RequestedEngine, str]
) -> None:
    name, form = requested
    tall = {"tall": random_weight(*SHAPES["tall"], seed=0)}
    engine = open_engine(freeze(tall, "int8"), name, options(form))
    N, K = SHAPES["tall"]
    engine.forward("tall", torch.ones(7, K))
    engine.forward("tall", torch.ones(33, K))
    engine.forward("tall", torch.ones(300, K), recompute=True)
    engine.input_gradient("tall", torch.ones(520, N))
    engine.input_gradient("tall", torch.empty(0, N))
    report = engine.report()
    json.dumps(report, allow_nan=False)
    assert report["requested"] == report["engine"] == name
    assert report["why"] == "asked for by name"
    assert report["form"] == form
    if form != "codes":
        assert report["form_why"] == "asked for by name"
        assert report["buckets"] == list(BUCKETS)
    assert ("context" in report) == (requested == ("qnn", "table"))
    if "context" in report:
        assert report["context"]["graphs"] == 2 * len(BUCKETS)
        assert report["context"]["bytes"] > 96 * 64
        assert report["context"]["spill_bytes"] >= 0
        assert report["context"]["cached"] is False
    assert ("emulator" in report["device"]) == (name == "qnn")
    assert report["threads"] == torch.get_num_threads() == 2
    assert report["products"] == {name: {"forward": 2, "recompute": 1, "input_gradient": 2}}
    assert all(0 < seconds < 60 for seconds in report["seconds"][name].values())
    assert set(report["seconds"]) == {name}
    padded = 0 if name == "torch_cpu" else 1 + (32 + 8 - 33) + (512 - 300) + (512 + 8 - 520)
    assert report["rows"] == {"given": 7 + 33 + 300 + 520, "padded": padded}
    assert report["fallbacks"] == []
    assert report["repeats"] == []
    versions = {"torch", "numpy", "cpu"}
    if name != "torch_cpu":
        versions |= {"onnxruntime", "form"}
        assert report["versions"]["form"] == form
    if name == "qnn":
        versions |= {"onnxruntime-qnn"}
    assert set(report["versions"]) == versions
    assert "unknown" not in report["versions"].values()


def test_close_lets_go_of_the_weights(
    freeze: Freeze, requested: tuple[RequestedEngine, str]
) -> None:
    name, form = requested
    engine = open_engine(freeze({"m": random_weight(6, 10, 0)}, "int8"), name, options(form))
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
    requested: tuple[RequestedEngine, str], entry: float, repeats: int, fallbacks: int
) -> None:
    """fp16 weights may be large; 0.75 * entry * 400 overflows fp16, once or at 2**-6 as well."""
    format: WeightFormat = "fp16"
    codes = np.full((6, 400), entry, dtype=np.float16)
    matrix = FrozenMatrix("large", format, codes, None)
    name, form = requested
    torch_cpu = create_engine("torch_cpu", {"large": matrix}, EngineOptions(threads=2))
    engine = (
        torch_cpu
        if name == "torch_cpu"
        else create_engine(name, {"large": matrix}, options(form), fallback=torch_cpu)  # type: ignore[arg-type]
    )
    x = torch.full((3, 400), 3.0)
    result = engine.forward("large", x)
    expected = x.double().numpy() @ effective(matrix).T
    assert row_errors(result, expected).max() <= TOLERANCE[name]
    report = engine.report()
    if name == "torch_cpu":
        assert report["fallbacks"] == report["repeats"] == []
        return
    assert report["repeats"] == [
        {"engine": name, "matrix": "large", "direction": "forward", "count": repeats}
    ]
    assert len(report["fallbacks"]) == fallbacks
    for fallback in report["fallbacks"]:
        assert fallback["engine"] == name
        assert fallback["matrix"] == "large"
        assert fallback["direction"] == "forward"
        assert "not finite" in fallback["cause"]
        assert report["products"]["torch_cpu"]["forward"] == 1
        assert report["products"][name]["forward"] == 0
