"""An engine that keeps failing is given up; one that fails now and then is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import npu.engines.onnx_cpu
from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import ProductError
from npu.frozen_matrix import FrozenMatrix
from npu.sessions import SessionOpener, cpu_sessions
from tests.npu.conftest import random_weight

MATRIX = FrozenMatrix("m", "fp16", random_weight(6, 10, 0).astype(np.float16), None)
DY = torch.from_numpy(random_weight(3, 6, 1))
SSR = "the graph failed: SSR: the DSP restarted"


class FailingSessions:
    """onnxruntime's own sessions, which fail while `broken`."""

    def __init__(self) -> None:
        self.broken = False
        self.runs = 0

    def opener(self, threads: int) -> SessionOpener:
        open_session = cpu_sessions(threads)

        def open_failing(model: bytes) -> Any:
            return _FailingSession(self, open_session(model))

        return open_failing


class _FailingSession:
    def __init__(self, state: FailingSessions, session: Any) -> None:
        self._state, self._session = state, session
        self.get_providers = session.get_providers

    def run(self, *arguments: Any) -> Any:
        self._state.runs += 1
        if self._state.broken:
            raise RuntimeError("SSR:\n  the DSP restarted")
        return self._session.run(*arguments)


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> FailingSessions:
    sessions = FailingSessions()
    monkeypatch.setattr(npu.engines.onnx_cpu, "cpu_sessions", sessions.opener)
    return sessions


@pytest.fixture
def engine(sessions: FailingSessions) -> Engine:
    options = EngineOptions(threads=1)
    torch_cpu = create_engine("torch_cpu", {"m": MATRIX}, options)
    return create_engine("onnx_cpu", {"m": MATRIX}, options, fallback=torch_cpu)


@pytest.fixture
def product(engine: Engine) -> Callable[[], None]:
    expected = DY.double().numpy() @ MATRIX.codes.astype(np.float64)

    def multiply() -> None:
        found = engine.input_gradient("m", DY).numpy()
        np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)

    return multiply


def test_three_failures_in_a_row_end_it_for_good(
    engine: Engine, sessions: FailingSessions, product: Callable[[], None]
) -> None:
    product()
    product()
    sessions.broken = True
    for _ in range(5):
        product()
    assert sessions.runs == 2 + 3, "a broken NPU may take seconds to fail"
    sessions.broken = False
    product()
    engine.forward("m", torch.ones(3, 10))
    assert sessions.runs == 2 + 3, "given up is given up: what comes back half-way can't be trusted"
    report = engine.report()
    json.dumps(report, allow_nan=False)
    assert report["given_up"] == {"after_products": 5, "cause": SSR}
    assert report["products"] == {
        "onnx_cpu": {"forward": 0, "recompute": 0, "input_gradient": 2},
        "torch_cpu": {"forward": 1, "recompute": 0, "input_gradient": 6},
    }
    (fallback,) = report["fallbacks"]
    assert fallback["cause"] == SSR
    assert fallback["count"] == 3


def test_a_success_in_between_resets_the_count(
    engine: Engine, sessions: FailingSessions, product: Callable[[], None]
) -> None:
    for _ in range(3):
        for broken in (True, True, False):
            sessions.broken = broken
            product()
    report = engine.report()
    assert sessions.runs == 9
    assert report["given_up"] is None
    assert report["products"]["onnx_cpu"]["input_gradient"] == 3
    assert report["products"]["torch_cpu"]["input_gradient"] == 6


def test_products_without_rows_prove_nothing(
    engine: Engine, sessions: FailingSessions, product: Callable[[], None]
) -> None:
    sessions.broken = True
    for _ in range(3):
        product()
        engine.input_gradient("m", DY[:0])
    assert engine.report()["given_up"] == {"after_products": 5, "cause": SSR}


def test_input_that_diverged_is_not_the_engines_failure(
    engine: Engine, sessions: FailingSessions, product: Callable[[], None]
) -> None:
    for _ in range(4):
        with pytest.raises(ValueError, match="'m', input_gradient: expected finite"):
            engine.input_gradient("m", DY * torch.inf)
    product()
    assert engine.report()["given_up"] is None
    assert engine.report()["fallbacks"] == []


def test_without_a_fallback_every_failure_is_raised(sessions: FailingSessions) -> None:
    engine = create_engine("onnx_cpu", {"m": MATRIX}, EngineOptions(threads=1))
    sessions.broken = True
    for _ in range(5):
        with pytest.raises(ProductError, match="the DSP restarted"):
            engine.input_gradient("m", DY)
    assert sessions.runs == 5
    assert engine.report()["given_up"] is None
