"""AdamW and its learning-rate schedule, with a state that can be saved exactly.

    m ← β₁ m + (1-β₁) g      v ← β₂ v + (1-β₂) g²
    θ ← θ · (1 - rate · decay) - rate · m̂ / (√v̂ + ε)      m̂, v̂ = m, v / (1 - βᵗ)

Source: Loshchilov & Hutter (arXiv 1711.05101) algorithm 2. Written out, since the first use of any
of torch's optimizers loads its compiler, which holds 68 MB from then on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from trainer.lora import LoraAdapter
from trainer.spec import TrainingSettings

_MOMENTS = ("exp_avg", "exp_avg_sq")
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
_NUMBERS_AT_ONCE = 1 << 18
"""1 MiB of each vector: all that belongs to them stays in the cache, and temporaries are small."""
_LONGEST_WARMUP = 5


def learning_rate_at(step: int, total: int, peak: float, settings: TrainingSettings) -> float:
    """The rate of optimizer step `step` (counted from 0) of `total`.

    Rises linearly over the warm-up (its first step is already above zero), then decays so that the
    step after the last would be zero.
    """
    warmup = min(round(settings.warmup_fraction * total), _LONGEST_WARMUP)
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if settings.schedule == "constant":
        return peak
    done = (step - warmup) / max(1, total - warmup)
    if settings.schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * done))
    return peak * (1 - done)


class Optimizer:
    """AdamW over an adapter's flat vector, with gradient clipping."""

    def __init__(self, adapter: LoraAdapter, settings: TrainingSettings) -> None:
        """A fresh optimizer, no step taken."""
        self._adapter = adapter
        self._settings = settings
        self._moments: dict[str, torch.Tensor] = {}
        self.steps_taken = 0

    def step(self, learning_rate: float) -> float:
        """Clip the adapter's gradient and update the adapter.

        Returns:
            The gradients' norm before clipping.

        Raises:
            FloatingPointError: if that norm isn't finite; the adapter is left as it was.
        """
        gradient = self._adapter.gradient
        norm = float(torch.linalg.vector_norm(gradient))
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"expected finite gradients at step {self.steps_taken + 1}, found a norm of {norm};"
                " lower the learning rate"
            )
        if norm > self._settings.max_grad_norm:
            gradient.mul_(self._settings.max_grad_norm / norm)
        if not self._moments:
            self._moments = {moment: torch.zeros_like(self._adapter.flat) for moment in _MOMENTS}
        self.steps_taken += 1
        self._update(learning_rate)
        return norm

    def _update(self, learning_rate: float) -> None:
        rate = learning_rate / (1 - _BETAS[0] ** self.steps_taken)
        unbiased = (1 - _BETAS[1] ** self.steps_taken) ** -0.5
        everything = (self._adapter.flat, self._adapter.gradient, *self._moments.values())
        for flat, gradient, mean, square in zip(
            *(vector.split(_NUMBERS_AT_ONCE) for vector in everything), strict=True
        ):
            flat.mul_(1 - learning_rate * self._settings.weight_decay)
            mean.lerp_(gradient, 1 - _BETAS[0])
            square.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
            flat.addcdiv_(mean, square.sqrt().mul_(unbiased).add_(_EPSILON), value=-rate)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Both moments under `<moment>/<PEFT key>`, fp32; empty before the first step."""
        return {
            f"{moment}/{key}": view.numpy().copy()
            for moment, flat in self._moments.items()
            for key, view in self._adapter.views(flat).items()
        }

    def load_arrays(self, arrays: Mapping[str, np.ndarray], steps_taken: int) -> None:
        """Take over the state that `to_arrays` gave after `steps_taken` steps.

        Raises:
            ValueError: if a moment is missing.
        """
        self.steps_taken = steps_taken
        self._moments = {}
        if steps_taken == 0:
            return
        moments = {moment: torch.zeros_like(self._adapter.flat) for moment in _MOMENTS}
        for moment, flat in moments.items():
            for key, view in self._adapter.views(flat).items():
                name = f"{moment}/{key}"
                if name not in arrays:
                    raise ValueError(f"expected the optimizer's {name}, found none")
                view.copy_(torch.from_numpy(np.array(arrays[name], np.float32)))
        self._moments = moments
