"""The frozen products: one interface, three engines, and no fallback that isn't counted.

Every frozen linear of the model is used in three products, all reading ONE stored W [N, K]:

                 K                    K                     N
             ┌───────┐            ┌───────┐             ┌───────┐
    forward  │   x   │ M    ·     │   W   │ N  ^T   =   │   y   │ M      y  = x W^T
             └───────┘            └───────┘             └───────┘

    recompute: the same product again, in the backward pass, instead of keeping y

                 N                    K                     K
    input    ┌───────┐            ┌───────┐             ┌───────┐
    gradient │  dy   │ M    ·     │   W   │ N       =   │  dx   │ M      dx = dy W
             └───────┘            └───────┘             └───────┘

    M rows are tokens; N is the weight's output channels, K its input channels.
    int8:  W = diag(scale) Q / 128:   y = (x Q^T / 128) · scale      dx = ((dy · scale) Q) / 128
                                       engine ───┘   └─── fp32, host ───┘        └─── engine
    fp16:  W = Q

No transposed copy of W exists: an engine reads the same codes forwards and backwards.
"""

from __future__ import annotations

import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch

from npu.errors import EngineError, NonFiniteInput, ProductError
from npu.htp import find_snapdragon
from npu.ledger import Direction, Ledger, Product
from npu.weights import FrozenMatrix, FrozenWeights

__all__ = [
    "Engine",
    "EngineError",
    "EngineName",
    "NonFiniteInput",
    "ProductError",
    "RequestedEngine",
    "choose_engine",
    "create_engine",
    "open_engine",
]

EngineName = Literal["qnn", "onnx_cpu", "torch_cpu"]
RequestedEngine = Literal["auto", "qnn", "onnx_cpu", "torch_cpu"]


class Engine(ABC):
    """Computes the frozen products of the matrices it was opened with; for one thread at a time.

    A subclass supplies `compute`. This class checks the operands, counts, times, and hands a
    product that fails to the fallback engine.
    """

    name: ClassVar[EngineName]
    form: ClassVar[str]
    """How the weight reaches the product: "codes" (read in place) or "inputs" (graph input)."""

    requested: RequestedEngine
    why: str

    def __init__(
        self,
        matrices: Mapping[str, FrozenMatrix],
        *,
        threads: int,
        fallback: Engine | None = None,
    ) -> None:
        """An engine over `matrices` that computes what fails on `fallback`, if there is one."""
        self._matrices = matrices
        self._fallback = fallback
        self.threads = threads
        self.ledger = Ledger(self.name)
        self.requested = self.name
        self.why = "asked for by name"

    @abstractmethod
    def compute(self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        """The product of finite `a` with `matrix`, uncounted: [M, K] -> [M, N] or [M, N] -> [M, K].

        fp32 in and out, M >= 1. Raises ProductError if this engine can't deliver it.
        """

    @property
    @abstractmethod
    def device(self) -> str:
        """What executes the products, for people."""

    def forward(self, matrix: str, x: torch.Tensor, *, recompute: bool = False) -> torch.Tensor:
        """y = x W^T: x fp32 [M, K] -> fp32 [M, N]; `recompute` says what it is counted as.

        Raises NonFiniteInput if x is not finite, KeyError for an unknown matrix, ValueError for
        another shape or dtype.
        """
        return self._product(matrix, "recompute" if recompute else "forward", x)

    def input_gradient(self, matrix: str, dy: torch.Tensor) -> torch.Tensor:
        """dx = dy W: dy fp32 [M, N] -> fp32 [M, K]. Raises as `forward` does."""
        return self._product(matrix, "input_gradient", dy)

    def report(self) -> dict[str, Any]:
        """What was asked for, what runs and why, and the ledger; JSON-able."""
        return {
            "requested": self.requested,
            "engine": self.name,
            "form": self.form,
            "why": self.why,
            "device": self.device,
            "versions": self.versions(),
            "threads": self.threads,
            **self.ledger.report(),
        }

    def versions(self) -> dict[str, str]:
        """Whatever can change the numbers: libraries and the instruction set they chose."""
        return {
            "torch": torch.__version__,
            "numpy": np.__version__,
            "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        }

    def close(self) -> None:
        """Let go of the matrices, the sessions and the fallback."""
        self._matrices = {}
        if self._fallback is not None:
            self._fallback.close()
            self._fallback = None

    @torch.no_grad()
    def _product(self, name: str, product: Product, a: torch.Tensor) -> torch.Tensor:
        direction: Direction = "input_gradient" if product == "input_gradient" else "forward"
        matrix = self._matrix(name)
        _check_operand(matrix, direction, a)
        self.ledger.rows(given=a.shape[0])
        started = time.perf_counter()
        engine, result = self._deliver(matrix, direction, a.contiguous())
        self.ledger.product(engine, product, time.perf_counter() - started)
        return result

    def _deliver(
        self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor
    ) -> tuple[EngineName, torch.Tensor]:
        """The product and the name of the engine that computed it."""
        if a.shape[0] == 0:
            return self.name, a.new_empty(0, _output_width(matrix, direction))
        try:
            return self.name, self.compute(matrix, direction, a)
        except ProductError as failure:
            if self._fallback is None:
                raise
            self.ledger.fallback(self.name, str(failure), matrix.name, direction)
            return self._fallback.name, self._fallback.compute(matrix, direction, a)

    def _matrix(self, name: str) -> FrozenMatrix:
        try:
            return self._matrices[name]
        except KeyError:
            raise KeyError(
                f"expected the name of a frozen matrix, found {name!r}: "
                f"this model has {len(self._matrices)}, and the engine must be open"
            ) from None


def open_engine(
    weights: FrozenWeights,
    requested: RequestedEngine = "auto",
    *,
    threads: int = 1,
    cache_dir: Path | None = None,
) -> Engine:
    """Open the engine `requested` over the matrices of `weights`; `torch_cpu` if it can't be had.

    `auto` is `qnn` on a real Snapdragon and `torch_cpu` elsewhere; the x86 emulator runs only
    when `qnn` is asked for by name. `qnn` and `onnx_cpu` pass the self-test before use. A failure
    to open or to pass falls back to `torch_cpu` with its cause in `report()["fallbacks"]`.

    `threads` becomes torch's thread count of this process as well. `cache_dir` keeps what the NPU
    compiler made, so that the next opening is fast.

    Raises ValueError for another name, or for less than one thread.
    """
    if requested not in get_args(RequestedEngine):
        raise ValueError(
            f"expected an engine of {', '.join(get_args(RequestedEngine))}, found {requested!r}: "
            "choose one of them"
        )
    if threads < 1:
        raise ValueError(f"expected at least 1 thread, found {threads}: give a positive number")
    torch.set_num_threads(threads)
    chosen, why = choose_engine(requested)
    engine = create_engine("torch_cpu", weights.matrices, threads=threads)
    if chosen != "torch_cpu":
        try:
            engine = _open_tested(chosen, weights, engine, threads, cache_dir)
        except EngineError as failure:
            why = f"{chosen} can't be used: {failure}"
            engine.ledger.fallback(chosen, str(failure), None, None)
    engine.requested = requested
    engine.why = why
    return engine


def choose_engine(requested: RequestedEngine) -> tuple[EngineName, str]:
    """The engine meant by `requested` on this machine, and why."""
    if requested != "auto":
        return requested, "asked for by name"
    snapdragon = find_snapdragon()
    if snapdragon.found:
        return "qnn", snapdragon.reason
    return "torch_cpu", f"no Snapdragon NPU to use here: {snapdragon.reason}"


def create_engine(
    name: EngineName,
    matrices: Mapping[str, FrozenMatrix],
    *,
    threads: int,
    fallback: Engine | None = None,
    cache_dir: Path | None = None,
) -> Engine:
    """An engine that hasn't been tested; each is imported only when it is meant to run.

    Raises EngineError if what it needs can't be loaded.
    """
    if name == "qnn":
        from npu.engines.qnn import QnnEngine

        return QnnEngine(matrices, threads=threads, fallback=fallback, cache_dir=cache_dir)
    if name == "onnx_cpu":
        from npu.engines.onnx_cpu import OnnxCpuEngine

        return OnnxCpuEngine(matrices, threads=threads, fallback=fallback)
    from npu.engines.torch_cpu import TorchCpuEngine

    return TorchCpuEngine(matrices, threads=threads)


def _open_tested(
    name: EngineName,
    weights: FrozenWeights,
    fallback: Engine,
    threads: int,
    cache_dir: Path | None,
) -> Engine:
    """Create the engine `name` and let it pass the self-test. Raises EngineError."""
    from npu.selftest import check_engine

    engine = create_engine(
        name, weights.matrices, threads=threads, fallback=fallback, cache_dir=cache_dir
    )
    check_engine(engine, {matrix.format for matrix in weights.matrices.values()})
    engine.ledger = Ledger(engine.name)
    return engine


def _output_width(matrix: FrozenMatrix, direction: Direction) -> int:
    rows, columns = matrix.shape
    return rows if direction == "forward" else columns


def _check_operand(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> None:
    rows, columns = matrix.shape
    width = columns if direction == "forward" else rows
    if a.dtype != torch.float32 or a.ndim != 2 or a.shape[1] != width:
        raise ValueError(
            f"matrix '{matrix.name}', {direction}: expected float32 [M, {width}], found "
            f"{a.dtype} {list(a.shape)}: convert or reshape it"
        )
    # One pass without temporaries; the sum of finite numbers may overflow, hence the second look.
    if not a.sum().isfinite() and not a.isfinite().all():
        raise NonFiniteInput(matrix.name, direction)
