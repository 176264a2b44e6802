"""What a calibration may be told. Without torch, so that adding a model needs it only for this."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_TOLERANCE = 0.2
"""The gradients may move by a fifth, a cosine of about 0.98."""

DEFAULT_TOKENS = 96
"""Tokens of a calibration at most: three or four short texts."""

PhaseProgress = Callable[[str, int, int], None]
"""Called with what is being done, matrices done and matrices in all."""


class CalibrationError(ValueError):
    """A model can't be calibrated; says why and what to do."""


@dataclass(frozen=True)
class CalibrationSettings:
    """What decides the numbers besides the model and the texts."""

    rank: int = 8
    alpha: float = 16.0
    seed: int = 0
    """Of the adapter."""
    threads: int = 1


@dataclass(frozen=True)
class AutoFormat:
    """What `--format auto` may be told. Raises CalibrationError for numbers that mean nothing."""

    texts: Path
    """JSONL rows with `input` and `label`; see `read_texts`."""
    budget: float | None = None
    """Bytes per parameter of the frozen matrices; None for no limit."""
    tolerance: float = DEFAULT_TOLERANCE
    tokens: int = DEFAULT_TOKENS
    settings: CalibrationSettings = field(default_factory=CalibrationSettings)

    def __post_init__(self) -> None:
        """Refuse what can't be meant."""
        if self.budget is not None and not 0 < self.budget < math.inf:
            raise CalibrationError(
                f"expected a budget in bytes per parameter, found {self.budget}: give one like 0.7"
            )
        if not 0 <= self.tolerance < math.inf:
            raise CalibrationError(
                f"expected a tolerance of 0 or more, found {self.tolerance}: give one like 0.05"
            )
