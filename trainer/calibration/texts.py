"""The labelled texts a calibration computes its gradients on.

They decide which formats a base model's matrices get, and every client of the base model shares
that; so they are public ones and never a client's examples.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.calibration.options import DEFAULT_TOKENS, CalibrationError
from trainer.dataset import TokenExample
from trainer.packing import common_prefix
from trainer.tokens import ChatTokenizer, TokenizerError

_MOST_CONSIDERED = 64


@dataclass(frozen=True)
class CalibrationTexts:
    """Examples that fit one packed sequence, and what identifies them."""

    examples: tuple[TokenExample, ...]
    shared: int
    """How many leading tokens all the prompts have in common; packed once."""
    file: str
    """Name of the file, for people."""
    sha256: str
    """Of the file's bytes, in hex."""
    seed: int
    """Decided which of the file's rows were taken."""

    @property
    def tokens(self) -> int:
        """Length of the packed sequence."""
        own = sum(len(e.prompt) - self.shared + len(e.answer) - 1 for e in self.examples)
        return self.shared + own

    @property
    def label_tokens(self) -> int:
        """Tokens that carry loss."""
        return sum(len(example.answer) for example in self.examples)


def read_texts(
    path: Path, tokenizer: ChatTokenizer, *, tokens: int = DEFAULT_TOKENS, seed: int = 0
) -> CalibrationTexts:
    """Rows of a JSONL file with `input` and `label`, as many as fit `tokens` in a shuffled order.

    Rows whose `split` is `holdout` are left out: what measures a training has no part in it. A text
    longer than the limit is cut at its end. Which rows are taken depends on the file's bytes and
    the seed only.

    Raises:
        CalibrationError: for a line that is no such row, or if there are none.
        OSError: if the file can't be read.
    """
    data = path.read_bytes()
    rows = _rows(data, path.name)
    if not rows:
        raise CalibrationError(
            f"{path.name}: expected rows with 'input' and 'label' that aren't held out, found none"
        )
    order = sorted(rows, key=lambda n: hashlib.sha256(f"{seed}:{n}".encode()).digest())
    examples = []
    for number in order[:_MOST_CONSIDERED]:
        text, label = rows[number]
        try:
            encoded, _ = tokenizer.cut(text, label, tokens)
        except TokenizerError as error:
            raise CalibrationError(f"{path.name}, line {number}: {error}") from error
        examples.append(
            TokenExample(number, tuple(encoded.prompt), tuple(encoded.answer), label),
        )
    shared = common_prefix([example.prompt for example in examples])
    taken, used = [], shared
    for example in examples:
        own = len(example.prompt) - shared + len(example.answer) - 1
        if used + own <= tokens:
            taken.append(example)
            used += own
    return CalibrationTexts(tuple(taken), shared, path.name, hashlib.sha256(data).hexdigest(), seed)


def _rows(data: bytes, name: str) -> dict[int, tuple[str, str]]:
    """(input, label) by the number of its line."""
    rows = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except ValueError:
            row = None
        if not (
            isinstance(row, dict)
            and isinstance(row.get("input"), str)
            and isinstance(row.get("label"), str)
            and row["label"]
        ):
            raise CalibrationError(
                f"{name}, line {number}: expected an object with the texts 'input' and 'label'; "
                "correct the line or give another file"
            )
        if row.get("split") != "holdout":
            rows[number] = (row["input"], row["label"])
    return rows
