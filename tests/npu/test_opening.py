"""Which engine opens, and what is told when it isn't the one asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import npu.engine_choice
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import EngineError, ProductError
from npu.forms.inputs import InputsForm
from npu.htp import Snapdragon
from npu.opening import open_engine
from npu.weights import FrozenMatrix, FrozenWeights
from tests.npu.conftest import Freeze, random_weight


@pytest.fixture(scope="module")
def weights(freeze: Freeze) -> FrozenWeights:
    return freeze({"m": random_weight(6, 10, 0)}, "int8")


def test_auto_is_torch_on_anything_but_a_phone(
    weights: FrozenWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        npu.engine_choice, "find_snapdragon", lambda: Snapdragon(False, "it's a laptop")
    )
    report = open_engine(weights).report()
    assert report["requested"] == "auto"
    assert report["engine"] == "torch_cpu"
    assert "it's a laptop" in report["why"]
    assert report["fallbacks"] == [], "nothing failed: the CPU is the right choice here"


@pytest.mark.emulator
def test_auto_is_qnn_where_a_snapdragon_is_found(
    weights: FrozenWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npu.engine_choice, "find_snapdragon", lambda: Snapdragon(True, "a phone"))
    report = open_engine(weights).report()
    assert report["requested"] == "auto"
    assert report["engine"] == "qnn", report["fallbacks"]
    assert report["why"] == "a phone"


@pytest.mark.parametrize(
    ("name", "module"),
    [("qnn", "onnxruntime_qnn"), ("qnn", "onnxruntime"), ("onnx_cpu", "onnxruntime")],
)
def test_a_missing_library_falls_back_with_its_name(
    weights: FrozenWeights, monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    report = open_engine(weights, name).report()  # type: ignore[arg-type]
    assert report["engine"] == "torch_cpu"
    (fallback,) = report["fallbacks"]
    assert fallback["engine"] == name
    assert module.replace("_", "-") in fallback["cause"]
    assert "can't be loaded" in fallback["cause"]
    assert fallback["cause"] in report["why"]
    json.dumps(report, allow_nan=False)


def test_a_provider_that_cannot_register_falls_back(
    weights: FrozenWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    def fail(*_: object) -> None:
        raise RuntimeError("undefined symbol: QnnInterface_getProviders")

    monkeypatch.setattr(onnxruntime, "get_ep_devices", list)
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", fail)
    report = open_engine(weights, "qnn").report()
    assert report["engine"] == "torch_cpu"
    assert "undefined symbol" in report["fallbacks"][0]["cause"]


def test_a_matrix_that_is_only_looked_up_lies_in_no_table(freeze: Freeze) -> None:
    both = freeze({"m": random_weight(6, 10, 0), "lookup": random_weight(20, 10, 1)}, "int8")
    options = EngineOptions(form="table")
    engine = open_engine(both, "onnx_cpu", options, products={"m"})
    assert engine.report()["form"] == "table"
    assert engine.report()["precision"]["formats"]["int8"]["parameters"] == 60
    engine.forward("m", torch.ones(3, 10))
    with pytest.raises(KeyError, match="lookup"):
        engine.forward("lookup", torch.ones(3, 10))


def test_a_graph_that_fails_while_training_is_made_good_once_and_counted() -> None:
    """Native failures reach us as exceptions of many classes; the product is still delivered."""
    codes = random_weight(6, 10, 0).astype(np.float16)
    matrix = FrozenMatrix("m", "fp16", codes, None)
    torch_cpu = create_engine("torch_cpu", {"m": matrix}, EngineOptions(threads=1))
    engine = create_engine("onnx_cpu", {"m": matrix}, EngineOptions(threads=1), fallback=torch_cpu)
    x = torch.ones(3, 10)
    expected = torch_cpu.forward("m", x)
    attempts = []

    def broken(model: bytes) -> None:
        attempts.append(model)
        raise EngineError("DSP out of memory")

    engine.graphs = InputsForm(broken)  # type: ignore[attr-defined, arg-type]
    assert torch.equal(engine.forward("m", x), expected)
    assert torch.equal(engine.forward("m", x), expected)
    engine.input_gradient("m", torch.ones(3, 6))
    report = engine.report()
    assert len(attempts) == 2, "one attempt a graph: a compiler that fails is slow as well"
    assert report["products"]["torch_cpu"] == {"forward": 2, "recompute": 0, "input_gradient": 1}
    assert report["products"]["onnx_cpu"] == {"forward": 0, "recompute": 0, "input_gradient": 0}
    cause = "DSP out of memory"
    assert report["fallbacks"] == [
        {"engine": "onnx_cpu", "cause": cause, "matrix": "m", "direction": "forward", "count": 2},
        {
            "engine": "onnx_cpu",
            "cause": cause,
            "matrix": "m",
            "direction": "input_gradient",
            "count": 1,
        },
    ]


def test_without_a_fallback_the_failure_is_raised() -> None:
    matrix = FrozenMatrix("m", "fp16", np.ones((6, 10), np.float16), None)
    engine = create_engine("onnx_cpu", {"m": matrix}, EngineOptions(threads=1))

    class Failing:
        def run(self, *_: object) -> None:
            raise RuntimeError("SSR: the DSP restarted")

    engine.graphs = InputsForm(lambda model: Failing())  # type: ignore[attr-defined, arg-type, return-value]
    with pytest.raises(ProductError, match="the DSP restarted"):
        engine.forward("m", torch.ones(3, 10))


def test_other_names_and_thread_counts_are_refused(weights: FrozenWeights) -> None:
    with pytest.raises(ValueError, match="found 'cuda'"):
        open_engine(weights, "cuda")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="found 0"):
        open_engine(weights, EngineOptions(threads=0))


def test_torch_needs_no_onnxruntime() -> None:
    """A phone without onnxruntime must still train."""
    program = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from npu.engine_options import EngineOptions\n"
        "from npu.engines.create import create_engine\n"
        "create_engine('torch_cpu', {}, EngineOptions())\n"
        "assert 'npu.sessions' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
