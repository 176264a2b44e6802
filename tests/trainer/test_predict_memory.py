"""The longest questions that are answered stay within the memory: peaks of the real process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.predictor_child import (
    PredictorChild,
    add_version,
    label_question,
    text_question,
)

BUDGET_MB = 640


def peak_mb(child: PredictorChild) -> float:
    status = Path(f"/proc/{child.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def most(refused: dict[str, Any]) -> int:
    assert refused["event"] == "refused"
    assert "fits into the memory" in refused["error"]
    found = re.search(r"at most (\d+) tokens", refused["error"])
    assert found is not None
    return int(found[1])


@pytest.mark.slow
def test_the_longest_questions_stay_within_the_memory(smollm2_home: Path, tmp_path: Path) -> None:
    (tmp_path / "models").symlink_to(smollm2_home / "models")
    versions = [add_version(tmp_path, number, "smollm2-135m", rank=8) for number in (1, 2)]
    child = PredictorChild(tmp_path, "--memory-mb", str(BUDGET_MB))

    def labels(words: int) -> dict[str, Any]:
        text = " word" * words
        return child.ask(label_question(tmp_path, versions[0], text, max_tokens=8192))

    def text(words: int) -> dict[str, Any]:
        return child.ask(text_question(tmp_path, versions[1], " word" * words, max_tokens=4))

    template = 40  # more than the prompt has beside its words
    longest = most(labels(8000)) - template
    assert longest > 500
    assert labels(longest)["event"] == "answer"
    longest = most(text(8000)) - template
    assert longest > 1000
    assert text(longest)["event"] == "answer"
    found = peak_mb(child)
    assert 0.75 * BUDGET_MB < found <= BUDGET_MB
    assert child.end()[0] == 0
