"""A frozen linear with its adapter: the engine's product and the adapter's at the same time.

    forward    engine's thread   y = x Wᵀ ──────────────────────────┐
               CPU               thin = scale · A xᵀ, delta = thinᵀ Bᵀ ─▶ y + delta

    backward   engine's thread   dx = dy W ──────────────────────────────────────────┐
               CPU               dB += (thin dy)ᵀ, dthin = scale · Bᵀ dyᵀ, dA += dthin x,
                                 delta = dthinᵀ A ────────────────────────────────────▶ dx + delta

    x [M, K]   W [N, K], of the engine   A [ranks, K]   B [N, rank]   thin [ranks, M]

What is thin lies along the tokens: with the ranks as the inner axis sgemm takes up to nine times as
long (measured on x86 with MKL).

Linears that share an input (`trainer/models/layout.py`) are one frozen product, and their A are one
matrix; each B has its own columns of the outputs. With an engine that has no thread of its own
there is nothing to overlap, and delta is added as it is computed.
"""

from __future__ import annotations

import torch

from npu.engine import Engine
from npu.ledger import Product
from trainer.lora import LinearLora


def adapted_forward(
    engine: Engine,
    product: Product,
    matrix: str,
    x: torch.Tensor,
    lora: LinearLora | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The outputs and what the backward pass needs again.

    Args:
        engine: holder of the matrix.
        product: `forward`, or `recompute` in a backward pass; what the engine counts it as.
        matrix: its name; shape [N, K].
        x: [M, K].
        lora: the adapters of its linears; None if none is adapted.

    Returns:
        y [M, N] with what the adapters add, and thin [ranks, M], None without adapters.

    Raises:
        NonFiniteInput: if x is not finite.
    """
    with engine.begin(product, matrix, x) as pending:
        if lora is None:
            return pending.result(), None
        thin = adapter_inputs(x, lora)
        parts = lora.split(thin)
        if engine.own_thread:
            deltas = [part.t() @ B.t() for part, B in zip(parts, lora.B, strict=True)]
            y = pending.result()
            for columns, delta in zip(lora.columns, deltas, strict=True):
                y[:, columns] += delta
        else:
            y = pending.result()
            for columns, part, B in zip(lora.columns, parts, lora.B, strict=True):
                y[:, columns].addmm_(part.t(), B.t())
        return y, thin


def adapted_backward(
    engine: Engine,
    matrix: str,
    dy: torch.Tensor,
    x: torch.Tensor,
    thin: torch.Tensor | None,
    lora: LinearLora | None,
    *,
    needs_dx: bool,
) -> torch.Tensor | None:
    """Add the adapters' gradients to theirs; without a need for dx there is no frozen product.

    Args:
        engine: holder of the matrix.
        matrix: its name; shape [N, K].
        dy: [M, N].
        x: as given to `adapted_forward`.
        thin: as returned by it.
        lora: the adapters, unchanged since.
        needs_dx: whether anything below x can learn.

    Returns:
        dx [M, K], or None if it isn't needed.

    Raises:
        NonFiniteInput: if dy is not finite and dx needed.
    """
    if not needs_dx:
        if lora is not None and thin is not None:
            add_adapter_gradients(dy, x, thin, lora)
        return None
    with engine.begin("input_gradient", matrix, dy) as pending:
        if lora is None or thin is None:
            return pending.result()
        d_thin = add_adapter_gradients(dy, x, thin, lora)
        if engine.own_thread:
            delta = d_thin.t() @ lora.A
            return pending.result().add_(delta)
        return pending.result().addmm_(d_thin.t(), lora.A)


def adapter_inputs(x: torch.Tensor, lora: LinearLora) -> torch.Tensor:
    """thin = scale · A xᵀ [ranks, M], of all the linears at once."""
    return (lora.A @ x.t()).mul_(lora.scale)


def add_adapter_gradients(
    dy: torch.Tensor, x: torch.Tensor, thin: torch.Tensor, lora: LinearLora
) -> torch.Tensor:
    """The CPU's part backwards: dA and dB are added to the adapter's; dthin [M, ranks]."""
    d_thin = torch.empty_like(thin)
    parts = zip(
        lora.split(d_thin), lora.split(thin), lora.B, lora.B_gradients, lora.columns, strict=True
    )
    for d_part, part, B, dB, columns in parts:
        d_own = dy[:, columns]
        torch.mm(B.t(), d_own.t(), out=d_part)
        dB.add_(torch.mm(part, d_own).t())
    d_thin.mul_(lora.scale)
    lora.A_gradient.addmm_(d_thin, x)
    return d_thin
