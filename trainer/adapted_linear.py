"""A frozen linear with its adapter: the engine's product and the adapter's at the same time.

    forward    engine's thread   y = x Wᵀ ─────────────────────────┐
               CPU               thin = scale · x Aᵀ, delta = thin Bᵀ ─▶ y + delta

    backward   engine's thread   dx = dy W ─────────────────────────────────────────┐
               CPU               dB = dyᵀ thin, dthin = scale · dy B, dA = dthinᵀ x,
                                 delta = dthin A ────────────────────────────────────▶ dx + delta

    x [M, K]   W [N, K], of the engine   A [rank, K]   B [N, rank]   thin [M, rank]

Linears that share an input (`trainer/models/layout.py`) are one frozen product, and their A are
multiplied as one matrix; each B has its own columns of the outputs. An engine without a thread of
its own computes the same, one after the other.

The plain functions know nothing of autograd; `adapted_linear` is what autograd sees of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from npu.engine import Engine
from trainer.frozen_linear import forward_product
from trainer.lora import LinearLora


@dataclass(frozen=True)
class AdaptedGradients:
    """What the backward pass of one adapted product finds."""

    A: tuple[torch.Tensor, ...]
    """Of each lora_A, [rank, K]."""
    B: tuple[torch.Tensor, ...]
    """Of each lora_B, [columns, rank]."""
    x: torch.Tensor | None
    """[M, K]; None if it was not wanted."""


def adapted_forward(
    engine: Engine, matrix: str, x: torch.Tensor, lora: LinearLora
) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs and what the backward pass needs again.

    Args:
        engine: holder of the matrix.
        matrix: its name; shape [N, K].
        x: fp32 [M, K].
        lora: the adapters of its linears.

    Returns:
        y [M, N] with what the adapters add, and thin [M, ranks].

    Raises:
        NonFiniteInput: if x is not finite.
    """
    with torch.no_grad(), engine.begin(forward_product(), matrix, x) as product:
        thin, deltas = adapter_outputs(x, lora)
        y = product.result()
        for columns, delta in zip(lora.columns, deltas, strict=True):
            y[:, columns] += delta
    return y, thin


def adapted_backward(
    engine: Engine,
    matrix: str,
    dy: torch.Tensor,
    x: torch.Tensor,
    thin: torch.Tensor,
    lora: LinearLora,
    *,
    needs_dx: bool,
) -> AdaptedGradients:
    """Gradients of the adapters and, if wanted, of x; without it there is no frozen product.

    Args:
        engine: holder of the matrix.
        matrix: its name; shape [N, K].
        dy: fp32 [M, N].
        x: as given to `adapted_forward`.
        thin: as returned by it.
        lora: the adapters, unchanged since.
        needs_dx: whether anything below x can learn.

    Raises:
        NonFiniteInput: if dy is not finite and dx wanted.
    """
    with torch.no_grad():
        if not needs_dx:
            A, B, _ = adapter_gradients(dy, x, thin, lora)
            return AdaptedGradients(A, B, None)
        with engine.begin("input_gradient", matrix, dy) as product:
            A, B, dthin = adapter_gradients(dy, x, thin, lora)
            delta = dthin @ lora.stacked_A()
            return AdaptedGradients(A, B, product.result().add_(delta))


def adapter_outputs(x: torch.Tensor, lora: LinearLora) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The CPU's part forwards: thin = scale · x Aᵀ [M, ranks], and each linear's delta."""
    thin = (x @ lora.stacked_A().t()).mul_(lora.scale)
    parts = lora.split(thin, 1)
    return thin, [part @ B.t() for part, B in zip(parts, lora.B, strict=True)]


def adapter_gradients(
    dy: torch.Tensor, x: torch.Tensor, thin: torch.Tensor, lora: LinearLora
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...], torch.Tensor]:
    """The CPU's part backwards: dA and dB of each adapter, and dthin [M, ranks]."""
    outputs = [dy[:, columns] for columns in lora.columns]
    dB = tuple(output.t() @ part for output, part in zip(outputs, lora.split(thin, 1), strict=True))
    dthin = torch.cat([output @ B for output, B in zip(outputs, lora.B, strict=True)], dim=1)
    dthin.mul_(lora.scale)
    return lora.split(dthin.t() @ x, 0), dB, dthin


class _AdaptedProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        engine: Engine,
        matrix: str,
        lora: LinearLora,
        *parameters: torch.Tensor,
    ) -> torch.Tensor:
        y, thin = adapted_forward(engine, matrix, x, lora)
        ctx.engine, ctx.matrix, ctx.lora = engine, matrix, lora
        # Autograd refuses the backward pass if any of these was written to in between.
        ctx.save_for_backward(x, thin, *parameters)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (dy,) = gradients
        x, thin, *_ = ctx.saved_tensors
        found = adapted_backward(
            ctx.engine, ctx.matrix, dy, x, thin, ctx.lora, needs_dx=ctx.needs_input_grad[0]
        )
        return (found.x, None, None, None, *found.A, *found.B)


def adapted_linear(x: torch.Tensor, engine: Engine, matrix: str, lora: LinearLora) -> torch.Tensor:
    """`x Wᵀ` on the engine plus what the adapters add, differentiable in x, lora_A and lora_B.

    Args:
        x: fp32 [M, K].
        engine: holder of the matrix.
        matrix: its name in the frozen-weight file; shape [N, K].
        lora: the adapters of its linears.

    Returns:
        fp32 [M, N].
    """
    y: torch.Tensor = _AdaptedProduct.apply(  # type: ignore[no-untyped-call]
        x, engine, matrix, lora, *lora.A, *lora.B
    )
    return y
