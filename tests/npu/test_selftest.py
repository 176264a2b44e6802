"""The self-test must fail when the numbers are wrong: each way they can be is provoked here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch

import npu.engines.graph_engine
import npu.graphs
import npu.selftest
from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.engines.torch_cpu import TorchCpuEngine
from npu.errors import EngineError
from npu.opening import open_engine
from npu.rows import ProtectedRows
from npu.selftest import check_engine, run_selftest, selftest_matrices
from npu.weight_layout import WeightFormat
from tests.npu.conftest import Freeze, random_weight

Patch = pytest.MonkeyPatch


def wrong_transpose(patch: Patch) -> None:
    patch.setattr(npu.graphs, "_trans_b", lambda direction: 0 if direction == "forward" else 1)


def wrong_transpose_of_a_square_weight(patch: Patch) -> None:
    """The graph fits and runs; only the weight's asymmetry tells."""
    wrong_transpose(patch)
    patch.setattr(npu.selftest, "_N", 64)
    patch.setattr(npu.selftest, "_K", 64)


def no_transpose_of_the_gradient_only(patch: Patch) -> None:
    patch.setattr(npu.graphs, "_trans_b", lambda direction: 1)
    patch.setattr(npu.selftest, "_N", 64)
    patch.setattr(npu.selftest, "_K", 64)


def unprotected_rows(patch: Patch) -> None:
    def protect(rows: torch.Tensor, **_: Any) -> ProtectedRows:
        return ProtectedRows(rows.clamp(-65504, 65504).half(), torch.ones(rows.shape[0], 1))

    patch.setattr(npu.engines.graph_engine, "protect_rows", protect)


def one_scale_for_all_rows(patch: Patch) -> None:
    def protect(rows: torch.Tensor, **_: Any) -> ProtectedRows:
        power = 2.0 ** float(torch.frexp(rows.abs().max()).exponent)
        return ProtectedRows((rows / power).half(), torch.full((rows.shape[0], 1), power))

    patch.setattr(npu.engines.graph_engine, "protect_rows", protect)


def rows_not_restored(patch: Patch) -> None:
    patch.setattr(ProtectedRows, "restore", lambda self, result: result.float())


def another_step(patch: Patch) -> None:
    """Off by 0.8 %: codes times 1/127 instead of 2**-7."""
    patch.setattr(npu.graphs, "CODE_STEP", 1 / 127)


def rows_in_another_order(patch: Patch) -> None:
    restore = ProtectedRows.restore
    patch.setattr(ProtectedRows, "restore", lambda self, result: restore(self, result.flip(0)))


@pytest.mark.parametrize(
    "break_it",
    [
        wrong_transpose,
        wrong_transpose_of_a_square_weight,
        no_transpose_of_the_gradient_only,
        unprotected_rows,
        one_scale_for_all_rows,
        rows_not_restored,
        another_step,
        rows_in_another_order,
    ],
)
def test_a_wrong_engine_fails_and_falls_back_with_the_cause(
    break_it: Callable[[Patch], None], monkeypatch: Patch, freeze: Freeze
) -> None:
    weights = freeze({"m": random_weight(6, 10, 0)}, "int8")
    assert open_engine(weights, "onnx_cpu").name == "onnx_cpu"
    break_it(monkeypatch)
    engine = open_engine(weights, "onnx_cpu")
    report = engine.report()
    assert report["engine"] == "torch_cpu"
    assert report["requested"] == "onnx_cpu"
    (fallback,) = report["fallbacks"]
    assert fallback["engine"] == "onnx_cpu"
    assert fallback["matrix"] is None
    assert fallback["direction"] is None
    assert fallback["count"] == 1
    assert "self-test" in fallback["cause"]
    assert fallback["cause"] in report["why"]
    x = torch.ones(3, 10)
    expected = x.numpy() @ weights.matrices["m"].dequantize().T
    # fp32 sums of 10 terms in two orders
    np.testing.assert_allclose(engine.forward("m", x).numpy(), expected, rtol=1e-4, atol=1e-6)


def test_only_the_direction_that_is_wrong_fails(monkeypatch: Patch) -> None:
    no_transpose_of_the_gradient_only(monkeypatch)
    matrices = selftest_matrices(["fp16"])
    engine = create_engine("onnx_cpu", matrices, EngineOptions(threads=1))
    outcome = {
        (case.format, case.direction): case.passed for case in run_selftest(engine, matrices)
    }
    assert outcome == {("fp16", "forward"): True, ("fp16", "input_gradient"): False}


def torch_engine() -> Engine:
    return create_engine("torch_cpu", selftest_matrices(["int8"]), EngineOptions())


def test_wrong_rows_of_zeros_are_noticed(monkeypatch: Patch) -> None:
    compute = TorchCpuEngine.compute
    monkeypatch.setattr(TorchCpuEngine, "compute", lambda *operands: compute(*operands) + 1e-3)
    with pytest.raises(EngineError, match="expected an error of at most"):
        check_engine(torch_engine())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_result_that_is_not_finite_is_noticed(monkeypatch: Patch, value: float) -> None:
    compute = TorchCpuEngine.compute
    monkeypatch.setattr(
        TorchCpuEngine,
        "compute",
        lambda *operands: compute(*operands).index_fill(1, torch.tensor([2]), value),
    )
    engine = torch_engine()
    assert all(case.worst is None for case in run_selftest(engine, engine.matrices))
    with pytest.raises(EngineError, match="non-finite"):
        check_engine(engine)


def run_module(engine: str, form: str) -> tuple[int, dict[str, Any]]:
    process = subprocess.run(
        [sys.executable, "-m", "npu.selftest", "--engine", engine, "--form", form],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.stdout, process.stderr
    return process.returncode, json.loads(process.stdout)


@pytest.mark.parametrize(
    ("engine", "form"),
    [
        ("torch_cpu", "auto"),
        ("onnx_cpu", "inputs"),
        ("onnx_cpu", "table"),
        pytest.param("qnn", "inputs", marks=pytest.mark.emulator),
        pytest.param("qnn", "auto", marks=pytest.mark.emulator),
    ],
)
def test_the_command_prints_nothing_but_its_report(engine: str, form: str) -> None:
    code, report = run_module(engine, form)
    assert code == 0, report
    assert report["passed"]
    assert report["engine"] == report["requested"] == engine
    meant = {"torch_cpu": "codes", "qnn": "table"}[engine] if form == "auto" else form
    assert report["form"] == meant, report["form_why"]
    assert {(case["format"], case["direction"]) for case in report["cases"]} == {
        (format, direction)
        for format in get_args(WeightFormat)
        for direction in ("forward", "input_gradient")
    }
    # Not better than the arithmetic allows either: fp16 can't be mistaken for fp32.
    worst = max(case["worst"] for case in report["cases"])
    assert 0 < worst < (1e-6 if engine == "torch_cpu" else 7e-4)
    assert engine == "torch_cpu" or worst > 1e-4


def test_the_command_fails_when_the_test_does(
    monkeypatch: Patch, capfd: pytest.CaptureFixture[str]
) -> None:
    another_step(monkeypatch)
    assert npu.selftest.main(["--engine", "onnx_cpu"]) == 1
    report = json.loads(capfd.readouterr().out)
    assert report["passed"] is False
    assert [case["passed"] for case in report["cases"] if case["format"] == "fp16"] == [True, True]
