"""Rotary position embedding, in the half-split layout of Hugging Face's models.

Source: Su et al., RoFormer (arXiv 2104.09864) section 3.4; layout as in
`transformers.models.llama.modeling_llama.apply_rotary_pos_emb`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from trainer.models.config import DecoderConfig
from trainer.models.layout import ROPE_VECTOR


@dataclass(frozen=True)
class RopeTables:
    """How far each token's heads are turned: [T, 1, head_dim / 2], to broadcast over the heads."""

    cos: torch.Tensor
    sin: torch.Tensor

    def times(self, factor: float) -> RopeTables:
        """Tables that also scale what they turn."""
        return RopeTables(self.cos * factor, self.sin * factor)

    def __getitem__(self, rows: torch.Tensor) -> RopeTables:
        """The tables of some tokens."""
        return RopeTables(self.cos[rows], self.sin[rows])


def unscaled_inverse_frequencies(config: DecoderConfig) -> torch.Tensor:
    """theta ** (-2 i / head_dim) of each pair i of a head, fp32 [head_dim / 2]."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies: torch.Tensor = 1.0 / (config.rope_theta**exponents)
    return frequencies


def inverse_frequencies(
    config: DecoderConfig, vectors: Mapping[str, npt.NDArray[np.float32]]
) -> torch.Tensor:
    """Angle per position of each pair of a head, fp32 [head_dim / 2].

    `vectors` are those of the weight file, which has them for a model that scales them.
    """
    if config.rope_scaled:
        return torch.tensor(vectors[ROPE_VECTOR])
    return unscaled_inverse_frequencies(config)


def rope_tables(
    positions: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype = torch.float32
) -> RopeTables:
    """The tables of tokens at `positions`, int64 [T]; angles are fp32, as in `transformers`."""
    angles = (positions.float()[:, None] * frequencies)[:, None, :]
    return RopeTables(angles.cos().to(dtype), angles.sin().to(dtype))


def rotate(x: torch.Tensor, tables: RopeTables) -> torch.Tensor:
    """Queries or keys [T, heads, head_dim], turned."""
    return _turned(x, tables, backwards=False)


def rotate_gradient(dy: torch.Tensor, tables: RopeTables) -> torch.Tensor:
    """The gradient of x for the gradient `dy` of `rotate(x, tables)`: turned back."""
    return _turned(dy, tables, backwards=True)


def _turned(x: torch.Tensor, tables: RopeTables, *, backwards: bool) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    out = torch.empty(x.shape, dtype=x.dtype)
    new_first, new_second = out.chunk(2, dim=-1)
    sign = -1.0 if backwards else 1.0
    torch.mul(first, tables.cos, out=new_first)
    new_first.addcmul_(second, tables.sin, value=-sign)
    torch.mul(second, tables.cos, out=new_second)
    new_second.addcmul_(first, tables.sin, value=sign)
    return out
