"""CI's judgement of the demo accepts a real gain only."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.house.repository import ROOT

LEARNED: dict[str, Any] = {
    "accuracy_before": 0.41,
    "accuracy_after": 0.83,
    "loss_before": 2.2,
    "loss_after": 0.4,
    "holdout": 80,
    "steps": 70,
    "seconds": 93.2,
    "engine": "torch_cpu",
    "products": {"torch_cpu": {"forward": 1}},
    "adapter": "adapters/1",
}


def judge(result: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "check_demo.py")],
        input="a table\n" + json.dumps(result) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )


def test_learned() -> None:
    result = judge(LEARNED)
    assert result.returncode == 0, result.stderr
    assert "0.410 -> 0.830" in result.stdout


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"accuracy_after": 0.41}, "rise"),
        ({"accuracy_after": 0.50}, "rise"),  # nine points of eighty rows are noise
        ({"accuracy_before": 0.9, "accuracy_after": 0.95}, "rise"),
        ({"accuracy_after": float("nan")}, "rise"),
        ({"holdout": 12}, "holdout"),
        ({"loss_after": 2.3}, "loss"),
        ({"steps": 0}, "steps"),
        ({"products": {}}, "products"),
    ],
)
def test_not_learned(change: dict[str, Any], word: str) -> None:
    result = judge({**LEARNED, **change})
    assert result.returncode == 1
    assert word in result.stderr
