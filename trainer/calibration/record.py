"""`precision.json`: what was measured of a base model, and which formats that led to.

It lies beside the weights it describes and names them by their hash.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from npu.precision import Mix
from npu.weight_layout import WeightFormat
from trainer.calibration.calibration import (
    LORA_B_DEVIATION,
    Calibration,
    CostTable,
    FormatCost,
    MatrixCosts,
)
from trainer.calibration.changes import Change

RECORD_NAME = "precision.json"
RECORD_VERSION = 1


def precision_record(
    calibration: Calibration,
    table: CostTable,
    mix: Mix,
    *,
    base_hash: str,
    source: Mapping[str, str],
    chosen: Mapping[str, Change],
    whole: Change,
    seconds: float,
) -> dict[str, Any]:
    """All of it, JSON-able.

    Args:
        calibration: what measured.
        table: every matrix and candidate, one at a time.
        mix: what was chosen from that.
        base_hash: of the weight file that holds the mix.
        source: the model's `name` and `format`.
        chosen: each matrix alone in its chosen format, both directions measured together.
        whole: all matrices in their chosen formats.
        seconds: that measuring took.
    """
    texts, settings = calibration.texts, calibration.settings
    parameters = sum(math.prod(matrix.shape) for matrix in table.matrices)
    return {
        "precision_version": RECORD_VERSION,
        "base_hash": base_hash,
        "source": dict(source),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "calibration": {
            "texts": {
                "file": texts.file,
                "sha256": texts.sha256,
                "lines": [example.id for example in texts.examples],
                "tokens": texts.tokens,
                "label_tokens": texts.label_tokens,
                "seed": texts.seed,
            },
            "adapter": {
                "rank": settings.rank,
                "alpha": settings.alpha,
                "lora_b_deviation": LORA_B_DEVIATION,
                "seed": settings.seed,
            },
            "threads": settings.threads,
            "versions": calibration.engine.versions(),
            "seconds": round(seconds, 1),
        },
        "tolerance": mix.tolerance,
        "budget": mix.budget,
        "mix": {
            "parameters": parameters,
            "bytes": mix.bytes,
            "bytes_per_parameter": round(mix.bytes / parameters, 4),
            "estimate": mix.estimate,
            "excess": mix.excess,
            "measured": asdict(whole),
        },
        "matrices": [_matrix(matrix, mix, chosen[matrix.name]) for matrix in table.matrices],
    }


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write it into a model's folder that is still being made."""
    (folder / RECORD_NAME).write_text(json.dumps(record, indent=1), encoding="utf-8")


def _matrix(matrix: MatrixCosts, mix: Mix, both: Change) -> dict[str, Any]:
    format: WeightFormat = mix.formats[matrix.name]
    return {
        "name": matrix.name,
        "shape": list(matrix.shape),
        "native": matrix.native,
        "format": format,
        "reason": mix.reasons[matrix.name],
        "bytes": next(cost.bytes for cost in matrix.formats if cost.format == format),
        "measured": asdict(both),
        "candidates": [_candidate(cost) for cost in matrix.formats],
        "refused": dict(matrix.refused),
    }


def _candidate(cost: FormatCost) -> dict[str, Any]:
    return {
        "format": cost.format,
        "bytes": cost.bytes,
        "change": cost.change,
        "forward": asdict(cost.forward),
        "input_gradient": None if cost.input_gradient is None else asdict(cost.input_gradient),
    }
