"""Root mean square normalisation over the last axis, and its gradient.

    n = w · x · s      s = (mean(x²) + eps)^-1/2, one a row

Source: Zhang & Sennrich (arXiv 1910.07467) equation 4; eps as in Llama.
"""

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The normalised and weighted rows of `x` [..., width], weight [width]."""
    return (x * _inverse_rms(x, eps)).mul_(weight)


def rms_norm_gradient(
    dn: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """The gradient of x for the gradient `dn` of `rms_norm(x, weight, eps)`; the weight is frozen.

    With g = w · dn:  dx = s · g - x · s³ · mean(g · x).
    """
    inverse = _inverse_rms(x, eps)
    gradient = dn * weight
    along = (gradient * x).mean(-1, keepdim=True)
    return gradient.mul_(inverse).addcmul_(x, along.mul_(inverse.pow(3)), value=-1)


def _inverse_rms(x: torch.Tensor, eps: float) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
