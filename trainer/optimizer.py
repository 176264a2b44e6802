"""AdamW and its learning-rate schedule, with a state that can be saved exactly.

Source: Loshchilov & Hutter (arXiv 1711.05101); torch's own implementation does the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from trainer.lora import LoraAdapter
from trainer.spec import TrainingSettings

_MOMENTS = ("exp_avg", "exp_avg_sq")
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
    """AdamW over an adapter's tensors, with gradient clipping."""

    def __init__(self, adapter: LoraAdapter, settings: TrainingSettings) -> None:
        """A fresh optimizer, no step taken."""
        self._adapter = adapter
        self._settings = settings
        self._flat = torch.nn.Parameter(adapter.flat)
        self._flat.grad = adapter.gradient
        self._adamw = torch.optim.AdamW(
            [self._flat], lr=0.0, weight_decay=settings.weight_decay, fused=True
        )
        self.steps_taken = 0

    def step(self, learning_rate: float) -> float:
        """Clip the adapter's gradient and update the adapter.

        Returns:
            The gradients' norm before clipping.

        Raises:
            FloatingPointError: if that norm isn't finite; the adapter is left as it was.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self._flat, self._settings.max_grad_norm))
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"expected finite gradients at step {self.steps_taken + 1}, found a norm of {norm};"
                " lower the learning rate"
            )
        self._adamw.param_groups[0]["lr"] = learning_rate
        self._adamw.step()
        self.steps_taken += 1
        return norm

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Both moments under `<moment>/<PEFT key>`, fp32; empty before the first step."""
        state = self._adamw.state.get(self._flat, {})
        return {
            f"{moment}/{key}": view.numpy().copy()
            for moment in _MOMENTS
            if moment in state
            for key, view in self._adapter.views(state[moment]).items()
        }

    def load_arrays(self, arrays: Mapping[str, np.ndarray], steps_taken: int) -> None:
        """Take over the state that `to_arrays` gave after `steps_taken` steps.

        Raises:
            ValueError: if a moment is missing.
        """
        self.steps_taken = steps_taken
        self._adamw.state.clear()
        if steps_taken == 0:
            return
        state = {moment: torch.zeros_like(self._adapter.flat) for moment in _MOMENTS}
        for moment, flat in state.items():
            for key, view in self._adapter.views(flat).items():
                name = f"{moment}/{key}"
                if name not in arrays:
                    raise ValueError(f"expected the optimizer's {name}, found none")
                view.copy_(torch.from_numpy(np.array(arrays[name], np.float32)))
        self._adamw.state[self._flat] = {"step": torch.tensor(float(steps_taken)), **state}
