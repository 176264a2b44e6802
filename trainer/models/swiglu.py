"""The gated unit between the MLP's products: silu(gate) · up, and its gradient.

Source: Shazeer (arXiv 2002.05202) equation 6.
"""

import torch
import torch.nn.functional as F


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) · up [T, F] of the product's [T, 2F], gate before up."""
    gate, up = gate_up.chunk(2, dim=1)
    return F.silu(gate).mul_(up)


def swiglu_gradient(d_out: torch.Tensor, gate_up: torch.Tensor) -> torch.Tensor:
    """The gradient [T, 2F] of `gate_up` for the gradient `d_out` [T, F] of `swiglu(gate_up)`.

    With s = sigmoid(gate):  d_up = d · gate · s,  d_gate = d · up · s · (1 + gate · (1 - s)).
    """
    gate, up = gate_up.chunk(2, dim=1)
    gradient = torch.empty_like(gate_up)
    d_gate, d_up = gradient.chunk(2, dim=1)
    sigmoid = torch.sigmoid(gate)
    silu = gate * sigmoid
    torch.mul(d_out, silu, out=d_up)
    slope = silu.addcmul_(silu, sigmoid, value=-1).add_(sigmoid)  # s + gate·s·(1 - s)
    torch.mul(slope.mul_(up), d_out, out=d_gate)
    return gradient
