"""Rotary position embedding, in the half-split layout of Hugging Face's Llama.

Source: Su et al., RoFormer (arXiv 2104.09864) section 3.4; layout as in
`transformers.models.llama.modeling_llama.apply_rotary_pos_emb`.
"""

import torch


def rope_tables(
    positions: torch.Tensor, head_dim: int, theta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines for the given positions.

    Args:
        positions: int64 [T].
        head_dim: even size of one attention head.
        theta: base of the geometric series of wavelengths.

    Returns:
        Two fp32 tensors [T, 1, head_dim], to broadcast over the heads.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    inverse_frequencies = 1.0 / (theta**exponents)
    angles = positions.float()[:, None] * inverse_frequencies
    angles = torch.cat((angles, angles), dim=-1)[:, None, :]
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate queries or keys [T, heads, head_dim] by the tables of `rope_tables`."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
