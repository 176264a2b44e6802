"""Engines that were given up on this device, with the cause; the daemon writes the file as well."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from npu.json_file import read_json_file, write_json_file

DEMOTIONS_NAME = "demotions.json"
_MOST = 100
"""The latest so many are kept: one counts, the others are history."""


@dataclass(frozen=True)
class Demotion:
    """From now on this engine is not opened on a device of this fingerprint."""

    engine: str
    fingerprint: str
    cause: str
    """In one sentence."""
    phase: str | None = None
    run: int | None = None
    step: int | None = None
    at: str = dataclasses.field(
        default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def read_demotions(folder: Path) -> list[Demotion]:
    """Those in the home's engine folder, the latest last; what isn't one is passed over."""
    entries = (read_json_file(folder / DEMOTIONS_NAME) or {}).get("demotions")
    found = (_demotion(entry) for entry in entries) if isinstance(entries, list) else ()
    return [demotion for demotion in found if demotion is not None]


def find_demotion(folder: Path, engine: str, fingerprint: str) -> Demotion | None:
    """The latest one of this engine on a device of this fingerprint."""
    for demotion in reversed(read_demotions(folder)):
        if (demotion.engine, demotion.fingerprint) == (engine, fingerprint):
            return demotion
    return None


def add_demotion(folder: Path, demotion: Demotion) -> None:
    """Append one; it survives a power cut when this returns. Raises OSError."""
    _write(folder, [*read_demotions(folder), demotion][-_MOST:])


def lift_demotions(folder: Path, fingerprint: str) -> int:
    """Remove those of this fingerprint; returns how many there were. Raises OSError."""
    before = read_demotions(folder)
    kept = [demotion for demotion in before if demotion.fingerprint != fingerprint]
    if len(kept) < len(before):
        _write(folder, kept)
    return len(before) - len(kept)


def _write(folder: Path, demotions: list[Demotion]) -> None:
    entries = [dataclasses.asdict(demotion) for demotion in demotions]
    write_json_file(folder / DEMOTIONS_NAME, {"demotions": entries})


def _demotion(entry: Any) -> Demotion | None:
    if not isinstance(entry, dict):
        return None
    names = [field.name for field in dataclasses.fields(Demotion)]
    values = {name: entry[name] for name in names if name in entry}
    texts = [values.get(name) for name in ("engine", "fingerprint", "cause")]
    return Demotion(**values) if all(isinstance(text, str) for text in texts) else None
