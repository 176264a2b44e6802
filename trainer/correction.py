"""How a model's answer is corrected by a person's own labels (`trainer/priors.py`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    """The three numbers; a weight of zero asks no model at all."""

    smoothing: float = 0.5
    decay: float = 0.9
    weight: float = 0.75


DEFAULT = Correction()
"""Chosen by the label loss of 40 people's histories, not by what they were then asked."""
