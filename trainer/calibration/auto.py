"""`--format auto`: measure a base model, choose its formats, and measure what was chosen.

read ──▶ measure every matrix ──▶ choose (npu/precision.py) ──▶ [the weights are written]
     ──▶ measure each chosen format both ways, and the mix as it was written ──▶ record
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from npu.format_shares import format_bytes
from npu.precision import (
    BudgetError,
    Candidate,
    Mix,
    candidate_formats,
    choose_mix,
)
from npu.weights import FrozenWeights
from trainer.calibration.calibration import Calibration, CostTable
from trainer.calibration.options import AutoFormat, CalibrationError, PhaseProgress
from trainer.calibration.record import precision_record
from trainer.calibration.texts import read_texts
from trainer.models.base_model import BaseModel
from trainer.tokens import ChatTokenizer

_PRICE = 0.1
"""Squared change that saving one byte a parameter may cost: the knee of the curve. Measured on
SmolLM2-135M, by the whole mix: Q4_1 as it is for fp16 costs nothing, int8 for fp16 0.01; the
embedding in Q4_1 for int8 costs 0.5, Q4_0 for Q4_1 10."""


@dataclass(frozen=True)
class AutoChoice:
    """The formats of a base model's matrices, and how they came about."""

    calibration: Calibration
    table: CostTable
    mix: Mix
    seconds: float
    """That measuring and choosing took."""
    progress: PhaseProgress

    def record(self, weights: FrozenWeights, source: Mapping[str, str]) -> dict[str, Any]:
        """Measure each matrix as `weights` hold it, and all together; what `precision.json` says.

        `source` is the model's `name` and `format`.
        """
        began = time.monotonic()
        chosen = {}
        for done, (name, matrix) in enumerate(weights.matrices.items()):
            self.progress("checking", done, len(weights.matrices))
            chosen[name] = self.calibration.change_of({name: matrix})
        whole = self.calibration.change_of(weights.matrices)
        self.progress("checking", len(weights.matrices), len(weights.matrices))
        return precision_record(
            self.calibration,
            self.table,
            self.mix,
            base_hash=weights.content_hash,
            source=source,
            chosen=chosen,
            whole=whole,
            seconds=self.seconds + time.monotonic() - began,
        )


@contextmanager
def auto_formats(
    model: BaseModel,
    tokenizer: ChatTokenizer,
    auto: AutoFormat,
    folder: Path,
    progress: PhaseProgress,
) -> Iterator[AutoChoice]:
    """Measure `model` and choose; it takes minutes. The temporary file in `folder` has no name.

    Raises:
        CalibrationError: for the texts, or a budget that can't be met; that before measuring.
        ValueError, OSError: what reading the model raises.
    """
    began = time.monotonic()
    texts = read_texts(auto.texts, tokenizer, tokens=auto.tokens, seed=auto.settings.seed)
    shapes = {source.name: source.shape for source in model.matrices()}
    parameters = sum(map(math.prod, shapes.values()))
    unmeasured = {
        name: [Candidate(f, format_bytes(f, shape), 0.0) for f in candidate_formats(shape[1])]
        for name, shape in shapes.items()
    }
    _choose(unmeasured, auto, parameters)
    with Calibration.prepare(
        model, texts, folder, auto.settings, partial(progress, "reading")
    ) as calibration:
        table = calibration.measure(progress=partial(progress, "measuring"))
        mix = _choose(table.candidates(), auto, parameters)
        yield AutoChoice(calibration, table, mix, time.monotonic() - began, progress)


def _choose(
    candidates: Mapping[str, Sequence[Candidate]], auto: AutoFormat, parameters: int
) -> Mix:
    budget = None if auto.budget is None else int(auto.budget * parameters)
    try:
        return choose_mix(
            candidates, tolerance=auto.tolerance, budget=budget, price=_PRICE / parameters
        )
    except BudgetError as error:
        least = math.ceil(error.least / parameters * 1e4) / 1e4
        raise CalibrationError(
            f"expected a budget of at least {least} bytes per parameter, which the smallest "
            f"formats of all matrices take, found {auto.budget}: allow more"
        ) from error
