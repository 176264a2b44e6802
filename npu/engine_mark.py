"""The mark on the disk that an NPU engine is in use: what is left of a process that a crash ended.

worker ── writes ──▶ in-use.json ── phase by phase ──▶ removed at every orderly end
                          │
                          ├─ the daemon sees the worker die of a crash or a hang: it gives the
                          │  engine up (`demotions.json`) and removes the mark
                          └─ nobody saw why the worker died (Android kills without a word):
                             the next worker finds the mark and counts
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from npu.json_file import read_json_file, remove_file, write_json_file

Phase = Literal["opening", "first product", "training"]

MARK_NAME = "in-use.json"


@dataclass(frozen=True)
class EngineMark:
    """Who uses which engine, and how far it came."""

    engine: str
    form: str
    phase: Phase
    run: int
    pid: int
    fingerprint: str
    unexplained: int
    """Deaths in a row, before this use, that nobody saw the cause of."""


def read_mark(folder: Path) -> EngineMark | None:
    """The mark in the home's engine folder; None if there is none, or none that can be read."""
    content = read_json_file(folder / MARK_NAME)
    if content is None:
        return None
    try:
        mark = EngineMark(**{f.name: content[f.name] for f in dataclasses.fields(EngineMark)})
    except KeyError:
        return None
    numbers = (mark.run, mark.pid, mark.unexplained)
    texts = (mark.engine, mark.form, mark.fingerprint)
    whole = all(type(number) is int and number >= 0 for number in numbers) and all(
        isinstance(text, str) for text in texts
    )
    return mark if whole and mark.phase in get_args(Phase) else None


def write_mark(folder: Path, mark: EngineMark) -> None:
    """Put the mark on the disk; it survives a power cut when this returns. Raises OSError."""
    write_json_file(folder / MARK_NAME, dataclasses.asdict(mark))


def remove_mark(folder: Path) -> None:
    """Take it away. Raises OSError."""
    remove_file(folder / MARK_NAME)
