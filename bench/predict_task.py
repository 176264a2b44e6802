"""What is asked in `bench.predict`, written once for all who answer it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LABELS = (
    *("now", "later", "tonight", "tomorrow", "never", "work", "family", "money", "travel"),
    *("health", "sport", "music", "weather", "news", "other"),
)
"""Fifteen, as many as the film tags of the learning bench."""
INPUT = "The parcel from the pottery supplier arrives between ten and noon, please be at home."
QUESTION = "Tell me in a few sentences how a potter's day goes by, from the morning to the evening."


@dataclass(frozen=True)
class PredictTask:
    """As token ids, so that all who answer compute the same."""

    folder: str
    """A Hugging Face folder with the effective weights in fp32."""
    gguf: str | None
    """The model's file for llama.cpp."""
    threads: int
    label_prompt: Sequence[int]
    answers: Sequence[Sequence[int]]
    """Of each label, its tokens and the end token."""
    text_prompt: Sequence[int]
    text_tokens: int
    end_tokens: Sequence[int]

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, path: Path) -> PredictTask:
        """What `write` wrote."""
        return cls(**json.loads(path.read_text()))
