"""Faults of onnxruntime-qnn in real processes: what to put into their environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def environment(**fault: Any) -> dict[str, str]:
    """PYTHONPATH and FAULT for `onnxruntime_qnn` in this folder, which says what they mean."""
    here = Path(__file__).parent
    return {
        "PYTHONPATH": f"{here}:{here.parents[2]}",
        "FAULT": json.dumps({"says": "a fault of the test", **fault}),
    }
