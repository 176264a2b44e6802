"""The engine's own thread: what was begun ends, in order, whatever happens around it."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from npu.engine import Engine
from npu.engine_options import EngineOptions
from npu.engines.create import create_engine
from npu.errors import NonFiniteInput, ProductError
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction
from npu.pending_product import EngineThread, at_once

N, K = 6, 10
CODES = np.random.default_rng(0).integers(-128, 128, (N, K), np.int8)
MATRIX = FrozenMatrix("m", "int8", CODES, np.ones(N, np.float32))


def make_engine(name: str = "onnx_cpu", **options: bool) -> Engine:
    return create_engine(name, {"m": MATRIX}, EngineOptions(threads=1, **options))  # type: ignore[arg-type]


def replace_compute(
    engine: Engine, compute: Callable[[FrozenMatrix, Direction, torch.Tensor], torch.Tensor]
) -> None:
    setattr(engine, "compute", compute)  # noqa: B010  (a method, which mypy won't have assigned)


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_a_graph_engine_computes_beside_the_caller() -> None:
    """Neither would ever end if one of the two waited for the other before it began."""
    engine = make_engine()
    begun, go_on = threading.Event(), threading.Event()
    seen: list[tuple[threading.Thread, bool]] = []

    def compute(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        begun.set()
        assert go_on.wait(20)
        seen.append((threading.current_thread(), torch.is_grad_enabled()))
        return a.new_zeros(len(a), N)

    replace_compute(engine, compute)
    pending = engine.begin("forward", "m", torch.ones(2, K))
    assert begun.wait(20)
    go_on.set()
    assert pending.result().shape == (2, N)
    ((thread, grad_enabled),) = seen
    assert thread.name == "lorad-onnx_cpu"
    assert thread is not threading.current_thread()
    assert not grad_enabled
    assert engine.report()["products"]["onnx_cpu"]["forward"] == 1
    engine.close()
    assert not thread.is_alive()


@pytest.mark.parametrize("name", ["torch_cpu", "onnx_cpu"])
def test_without_a_thread_it_is_computed_on_the_spot(name: str) -> None:
    engine = make_engine(name, overlap=name == "torch_cpu")
    computed = []
    compute = engine.compute

    def noted(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        computed.append(threading.current_thread())
        return compute(matrix, direction, a)

    replace_compute(engine, noted)
    pending = engine.begin("input_gradient", "m", torch.ones(2, N))
    assert computed == [threading.current_thread()]
    expected = torch.ones(2, N) @ torch.from_numpy(MATRIX.dequantize())
    torch.testing.assert_close(pending.result(), expected, rtol=1e-3, atol=1e-3)
    assert engine.report()["products"][name]["input_gradient"] == 1


def test_all_products_take_the_one_thread_in_order() -> None:
    engine = make_engine()
    order: list[tuple[int, str]] = []

    def compute(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        order.append((len(a), threading.current_thread().name))
        time.sleep(0.01 if len(a) == 1 else 0)
        return a.new_zeros(len(a), N)

    replace_compute(engine, compute)
    pending = [engine.begin("forward", "m", torch.ones(rows, K)) for rows in (1, 2, 3)]
    engine.forward("m", torch.ones(4, K), recompute=True)
    for product in pending:
        product.result()
    assert order == [(rows, "lorad-onnx_cpu") for rows in (1, 2, 3, 4)]
    assert len(threads_named("lorad-onnx_cpu")) >= 1
    counts = {"forward": 3, "recompute": 1, "input_gradient": 0}
    assert engine.report()["products"]["onnx_cpu"] == counts
    assert engine.report()["rows"]["given"] == 10
    engine.close()


@pytest.mark.parametrize("overlap", [True, False])
def test_what_the_product_raises_comes_from_its_result(overlap: bool) -> None:
    engine = make_engine(overlap=overlap)
    bad = torch.ones(2, K)
    bad[1, 3] = torch.nan
    pending = engine.begin("forward", "m", bad)
    with pytest.raises(NonFiniteInput, match="'m', forward"):
        pending.result()

    def compute(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        raise ProductError("the graph failed: no")

    replace_compute(engine, compute)
    pending = engine.begin("forward", "m", torch.ones(2, K))
    with pytest.raises(ProductError, match="the graph failed: no"):
        pending.result()
    assert engine.report()["products"]["onnx_cpu"]["forward"] == 0
    engine.close()


def test_a_mistake_of_the_caller_is_raised_when_it_is_made() -> None:
    engine = make_engine()
    with pytest.raises(ValueError, match=r"expected float32 \[M, 10\]"):
        engine.begin("forward", "m", torch.ones(2, N))
    with pytest.raises(KeyError, match="no such"):
        engine.begin("forward", "no such", torch.ones(2, N))
    assert not threads_named("no such")


def test_leaving_the_block_waits_even_when_the_caller_failed() -> None:
    engine = make_engine()
    ended = []

    def compute(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2)
        ended.append(True)
        raise ProductError("lost to the caller's own error")

    replace_compute(engine, compute)
    with pytest.raises(ZeroDivisionError), engine.begin("forward", "m", torch.ones(2, K)):
        _ = 1 / 0
    assert ended


def test_a_fallback_is_counted_from_the_engines_thread() -> None:
    torch_cpu = make_engine("torch_cpu")
    engine = create_engine("onnx_cpu", {"m": MATRIX}, EngineOptions(), fallback=torch_cpu)

    def compute(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        raise ProductError("broken")

    replace_compute(engine, compute)
    with engine.begin("recompute", "m", torch.ones(2, K)) as pending:
        result = pending.result()
    assert torch.equal(result, torch_cpu.forward("m", torch.ones(2, K)))
    report = engine.report()
    assert report["products"]["torch_cpu"]["recompute"] == 1
    assert [fallback["cause"] for fallback in report["fallbacks"]] == ["broken"]
    engine.close()


def test_the_thread_is_made_late_and_ends_with_its_owner() -> None:
    owner = EngineThread("lorad-for-a-test")
    assert not threads_named("lorad-for-a-test")
    assert torch.equal(owner.begin(lambda: torch.ones(1)).result(), torch.ones(1))
    (thread,) = threads_named("lorad-for-a-test")
    del owner
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()


def test_a_finished_products_tensors_are_not_kept() -> None:
    owner = EngineThread("lorad-for-a-test")
    freed = threading.Event()

    class Noted:
        def __del__(self) -> None:
            freed.set()

    def begin() -> None:
        operand = Noted()
        owner.begin(lambda: torch.ones(1) if operand else torch.zeros(1)).result()

    begin()
    assert freed.wait(20)
    owner.close()


def test_at_once_keeps_the_error_for_the_result() -> None:
    def fail() -> torch.Tensor:
        raise ProductError("later")

    pending = at_once(fail)
    with pytest.raises(ProductError, match="later"):
        pending.result()


def test_a_product_that_never_ends_does_not_keep_the_process() -> None:
    code = (
        "import threading\n"
        "from npu.pending_product import EngineThread\n"
        "owner = EngineThread('stuck')\n"
        "owner.begin(threading.Event().wait)\n"
        "print('leaving')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "leaving\n"), done.stderr
