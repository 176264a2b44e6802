"""Recomputation of a block's activations in the backward pass.

The forward pass keeps only the block's input; the backward pass runs the block again with autograd
on and differentiates that. Memory for activations falls from every intermediate of every block to
one [T, hidden] tensor a block, for one more forward product per frozen linear.

`torch.utils.checkpoint` does the same; this version is a page long, knows that nothing here is
random, and tells the engine which products are recomputation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from trainer.frozen_linear import recomputing

Block = Callable[[torch.Tensor], torch.Tensor]


class _RecomputedBlock(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, block: Block, x: torch.Tensor, *parameters: torch.nn.Parameter
    ) -> torch.Tensor:
        ctx.block, ctx.parameters = block, parameters
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (dy,) = gradients
        (saved,) = ctx.saved_tensors
        x = saved.detach().requires_grad_(ctx.needs_input_grad[1])
        with torch.enable_grad(), recomputing():
            y = ctx.block(x)
        inputs = [*([x] if x.requires_grad else []), *ctx.parameters]
        found = list(torch.autograd.grad(y, inputs, dy))
        dx = found.pop(0) if x.requires_grad else None
        return (None, dx, *found)


def recomputed(
    block: Block, x: torch.Tensor, parameters: Sequence[torch.nn.Parameter]
) -> torch.Tensor:
    """Apply `block` to `x` [T, hidden], keeping only `x` for the backward pass.

    Args:
        block: pure function of its input and of `parameters`.
        x: the block's input.
        parameters: every trainable tensor that `block` uses; autograd sees only these. A block
            without any has nothing to differentiate but `x` itself.
    """
    y: torch.Tensor = _RecomputedBlock.apply(block, x, *parameters)  # type: ignore[no-untyped-call]
    return y
