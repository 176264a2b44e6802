"""Rotary frequencies that were stretched for longer contexts than a model was first trained on.

    linear   every frequency divided by one factor (Chen et al., arXiv 2306.15595)
    llama3   long waves divided by a factor, short ones kept, a smooth step between (Llama 3.1)
    factors  what GGUF keeps of llama3: one divisor for each frequency (`rope_freqs.weight`)

Computed once, when a model is added, from the unscaled frequencies fp32 [head_dim / 2], in fp32 and
in the order of `transformers.modeling_rope_utils`, so that the results are the same bits; `factors`
differs from `llama3` in the last bit or two, since it is rounded on its way.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Frequencies = npt.NDArray[np.float32]


class RopeScaling(Protocol):
    """A way of stretching rotary frequencies."""

    def scaled(self, frequencies: Frequencies) -> Frequencies:
        """The stretched ones of the unscaled `frequencies`; both fp32 [head_dim / 2]."""


@dataclass(frozen=True)
class LinearScaling:
    """Every frequency divided by `factor`."""

    factor: float

    def scaled(self, frequencies: Frequencies) -> Frequencies:
        """As `_compute_linear_scaling_rope_parameters`."""
        return frequencies / np.float32(self.factor)


@dataclass(frozen=True)
class Llama3Scaling:
    """Waves longer than `original_context / low_freq_factor` tokens stretched by `factor`.

    Those shorter than `original_context / high_freq_factor` stay as they are.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    def scaled(self, frequencies: Frequencies) -> Frequencies:
        """As `_compute_llama3_parameters`."""
        low, high = self.low_freq_factor, self.high_freq_factor
        one, factor = np.float32(1), np.float32(self.factor)
        # torch computes number / tensor as the tensor's reciprocal times the number
        lengths = one / frequencies * np.float32(2 * math.pi)
        long = lengths > np.float32(self.original_context / low)
        short = lengths < np.float32(self.original_context / high)
        kept = (one / lengths * np.float32(self.original_context) - np.float32(low)) / np.float32(
            high - low
        )
        stretched = np.where(long, frequencies / factor, frequencies)
        between = (one - kept) * stretched / factor + kept * stretched
        return np.where(long | short, stretched, between)


@dataclass(frozen=True)
class FactorScaling:
    """Each frequency divided by its own entry of `factors`, fp32 [head_dim / 2]."""

    factors: Frequencies

    def scaled(self, frequencies: Frequencies) -> Frequencies:
        """As llama.cpp's `ggml_rope_ext` divides an angle by its factor."""
        return frequencies / self.factors
