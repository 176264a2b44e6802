"""Where autograd meets the engine: one frozen linear without an adapter, three products.

    forward      y  = x Wᵀ     x [M, K] -> y [M, N]
    recompute    the same product again, inside the backward pass (see `recompute.py`)
    backward     dx = dy W     dy [M, N] -> dx [M, K]

`W` belongs to the engine and never becomes a torch parameter: there is no gradient for it and no
transposed copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from npu.engine import Engine
from npu.ledger import Product

_recomputing: ContextVar[bool] = ContextVar("recomputing", default=False)


@contextmanager
def recomputing() -> Iterator[None]:
    """Mark the frozen products inside as recomputation, so that the engine counts them as such."""
    token = _recomputing.set(True)
    try:
        yield
    finally:
        _recomputing.reset(token)


def forward_product() -> Product:
    """What a forward product that begins here is counted as; to be asked in the caller's thread."""
    return "recompute" if _recomputing.get() else "forward"


class _FrozenProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, engine: Engine, matrix: str) -> torch.Tensor:
        ctx.engine, ctx.matrix = engine, matrix
        return engine.begin(forward_product(), matrix, x).result()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (dy,) = gradients
        return ctx.engine.input_gradient(ctx.matrix, dy), None, None


def frozen_linear(x: torch.Tensor, engine: Engine, matrix: str) -> torch.Tensor:
    """`x Wᵀ` on the engine, differentiable in `x`.

    Args:
        x: fp32 [M, K].
        engine: holder of the matrix.
        matrix: its name in the frozen-weight file; shape [N, K].

    Returns:
        fp32 [M, N].
    """
    y: torch.Tensor = _FrozenProduct.apply(x, engine, matrix)  # type: ignore[no-untyped-call]
    return y
