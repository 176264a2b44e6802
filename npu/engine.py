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
    4 bits: W = fp16(code · scale (+ offset)), per block of 32 along K (`frozen_matrix.py`)

No transposed copy of W exists: an engine reads the same codes forwards and backwards.
"""

from __future__ import annotations

import math
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from npu.engine_choice import EngineName, RequestedEngine
from npu.engine_options import EngineOptions
from npu.errors import EngineError, NonFiniteInput, ProductError
from npu.format_shares import format_shares
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction, Ledger, Product
from npu.one_torch_thread import one_torch_thread
from npu.pending_product import EngineThread, PendingProduct, at_once

__all__ = [
    "Engine",
    "EngineError",
    "EngineName",
    "NonFiniteInput",
    "PendingProduct",
    "ProductError",
    "RequestedEngine",
]

_FAILURES_TO_GIVE_UP = 3
"""One failure may be a matrix's, two a coincidence; a broken NPU would fail, slowly, to the end."""


class Engine(ABC):
    """Computes the frozen products of the matrices it was opened with; for one thread at a time.

    A subclass supplies `compute`. This class checks the operands, counts, times, and hands a
    product that fails to the fallback engine, and all of them after three in a row. All products,
    and so sessions and books, are in the hands of one thread: the engine's own, or the caller's.
    """

    name: ClassVar[EngineName]
    own_thread: ClassVar[bool] = True
    """Whether the products run on a thread of the engine, beside what the caller computes. No gain
    where both would want the same cores."""

    form: str
    """How the weight reaches the product: "codes" (read in place), "inputs" (as a graph's input) or
    "table" (out of a table inside the compiled graph)."""

    buckets: tuple[int, ...] | None = None
    """Numbers of rows, ascending, that products are filled up to; None: none is."""
    form_why: str = "the only form this engine has"
    soc: str | None = None
    """The part, as SM8650, whose NPU computes or that the emulator imitates; None without one."""

    requested: RequestedEngine
    why: str

    def __init__(
        self,
        matrices: Mapping[str, FrozenMatrix],
        options: EngineOptions,
        *,
        fallback: Engine | None = None,
    ) -> None:
        """An engine over `matrices` that computes what fails on `fallback`, if there is one."""
        self.matrices = matrices
        self._fallback = fallback
        self.options = options
        self.precision = precision_summary(matrices.values())
        self.ledger = Ledger(self.name)
        self.requested = self.name
        self.why = "asked for by name"
        self._failures_in_a_row = 0
        overlaps = self.own_thread and options.overlap
        self._thread = EngineThread(f"lorad-{self.name}") if overlaps else None

    @abstractmethod
    def compute(self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        """The product of finite `a` with `matrix`, uncounted: [M, K] -> [M, N] or [M, N] -> [M, K].

        fp32 in and out, M >= 1. Raises ProductError if this engine can't deliver it.
        """

    @property
    @abstractmethod
    def device(self) -> str:
        """What executes the products, for people."""

    @property
    def decodable_bytes(self) -> int:
        """What `keep_decoded` has a use for."""
        return 0

    def keep_decoded(self, most_bytes: int) -> None:
        """Keep weights in a form that is read faster; at most so many bytes beside the codes.

        No number changes because of it.
        """
        del most_bytes  # this engine reads codes as fast

    def forward(self, matrix: str, x: torch.Tensor, *, recompute: bool = False) -> torch.Tensor:
        """y = x W^T: x fp32 [M, K] -> fp32 [M, N]; `recompute` says what it is counted as.

        Raises NonFiniteInput if x is not finite, KeyError for an unknown matrix, ValueError for
        another shape or dtype.
        """
        return self.begin("recompute" if recompute else "forward", matrix, x).result()

    def input_gradient(self, matrix: str, dy: torch.Tensor) -> torch.Tensor:
        """dx = dy W: dy fp32 [M, N] -> fp32 [M, K]. Raises as `forward` does."""
        return self.begin("input_gradient", matrix, dy).result()

    def begin(self, product: Product, matrix: str, a: torch.Tensor) -> PendingProduct:
        """Start `product` of `a`; the engine's thread computes it, or it is there on return.

        Nobody may write to `a` before it is over. What `forward` raises for a wrong name, shape or
        dtype is raised here; NonFiniteInput and ProductError by the product's `result`.
        """
        direction: Direction = "input_gradient" if product == "input_gradient" else "forward"
        frozen = self._matrix(matrix)
        _check_shape(frozen, direction, a)

        def compute() -> torch.Tensor:
            return self._product(frozen, product, direction, a)

        return at_once(compute) if self._thread is None else self._thread.begin(compute)

    def report(self) -> dict[str, Any]:
        """What was asked for, what runs and why, and the ledger; JSON-able."""
        return {
            "requested": self.requested,
            "engine": self.name,
            "form": self.form,
            "form_why": self.form_why,
            "why": self.why,
            "device": self.device,
            "soc": self.soc,
            "versions": self.versions(),
            "threads": self.options.threads,
            "precision": self.precision,
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
        """Let go of the thread, the matrices, the sessions and the fallback."""
        if self._thread is not None:
            self._thread.close()
        self.matrices = {}
        if self._fallback is not None:
            self._fallback.close()
            self._fallback = None

    @torch.no_grad()
    def _product(
        self, matrix: FrozenMatrix, product: Product, direction: Direction, a: torch.Tensor
    ) -> torch.Tensor:
        _check_finite(matrix, direction, a)
        self.ledger.rows(given=a.shape[0])
        started = time.perf_counter()
        engine, result = self._deliver(matrix, direction, a.contiguous())
        self.ledger.product(engine, product, time.perf_counter() - started)
        return result

    def _deliver(
        self, matrix: FrozenMatrix, direction: Direction, a: torch.Tensor
    ) -> tuple[EngineName, torch.Tensor]:
        """The product and the name of the engine that computed it.

        An engine that fails `_FAILURES_TO_GIVE_UP` products in a row gets no more of them.
        """
        if a.shape[0] == 0:
            return self.name, a.new_empty(0, _output_width(matrix, direction))
        if self._fallback is None:
            return self.name, self.compute(matrix, direction, a)
        if self._failures_in_a_row < _FAILURES_TO_GIVE_UP:
            try:
                result = self.compute(matrix, direction, a)
            except ProductError as failure:
                self._failures_in_a_row += 1
                self.ledger.fallback(self.name, str(failure), matrix.name, direction)
                if self._failures_in_a_row == _FAILURES_TO_GIVE_UP:
                    self.ledger.give_up(str(failure))
            else:
                self._failures_in_a_row = 0
                return self.name, result
        return self._fallback.name, self._fallback.compute(matrix, direction, a)

    def _matrix(self, name: str) -> FrozenMatrix:
        try:
            return self.matrices[name]
        except KeyError:
            raise KeyError(
                f"expected the name of a frozen matrix, found {name!r}: "
                f"this model has {len(self.matrices)}, and the engine must be open"
            ) from None


def precision_summary(matrices: Iterable[FrozenMatrix]) -> dict[str, Any]:
    """Matrices, parameters and bytes of each weight format, and bytes per parameter of all."""
    formats = format_shares((matrix.format, matrix.shape) for matrix in matrices)
    parameters = sum(share["parameters"] for share in formats.values())
    stored = sum(share["bytes"] for share in formats.values())
    return {
        "formats": dict(sorted(formats.items())),
        "bytes_per_parameter": round(stored / parameters, 4) if parameters else None,
    }


def _output_width(matrix: FrozenMatrix, direction: Direction) -> int:
    rows, columns = matrix.shape
    return rows if direction == "forward" else columns


def _check_shape(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> None:
    rows, columns = matrix.shape
    width = columns if direction == "forward" else rows
    if a.dtype != torch.float32 or a.ndim != 2 or a.shape[1] != width:
        raise ValueError(
            f"matrix '{matrix.name}', {direction}: expected float32 [M, {width}], found "
            f"{a.dtype} {list(a.shape)}: convert or reshape it"
        )


def _check_finite(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> None:
    # One pass without temporaries; the sum of finite numbers may overflow, hence the second look.
    # By one thread: to wake a second one, and to wait for it, costs more than half of a pass.
    with one_torch_thread():
        total = float(a.sum())
    if not math.isfinite(total) and not a.isfinite().all():
        raise NonFiniteInput(matrix.name, direction)
