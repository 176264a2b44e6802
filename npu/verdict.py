"""What the self-tests said of the engines on this device: `doctor.json`, valid for a fingerprint.

A failure that may pass by itself (a full disk, memory that ran out) is written down for people, but
nothing is decided by it later: the engine is tested again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from npu.engine_choice import EngineName
from npu.json_file import read_json_file, write_json_file

VERDICT_NAME = "doctor.json"


@dataclass(frozen=True)
class Check:
    """One engine and form, tested in a process of its own."""

    engine: EngineName
    form: str
    passed: bool
    cause: str | None = None
    """Why not, in one sentence."""
    remedy: str | None = None
    """What to do about it, in one sentence."""
    again: bool = False
    """Whether the same test may end otherwise next time, with nothing changed."""
    seconds: float = 0.0
    device: str | None = None
    soc: str | None = None

    @property
    def name(self) -> str:
        """For people."""
        return self.engine if self.engine == "torch_cpu" else f"{self.engine} (form {self.form})"

    @property
    def settled(self) -> bool:
        """Whether it needs no other test."""
        return self.passed or not self.again


@dataclass(frozen=True)
class Verdict:
    """The checks on one device, and what follows."""

    fingerprint: str
    checks: tuple[Check, ...]
    engine: EngineName
    form: str
    why: str
    at: str

    def check(self, engine: EngineName, form: str) -> Check | None:
        """The check of an engine and form, if it was tested and that settled it."""
        for check in self.checks:
            if (check.engine, check.form) == (engine, form) and check.settled:
                return check
        return None

    def to_json(self) -> dict[str, Any]:
        """JSON-able."""
        checks = [{"name": check.name, **dataclasses.asdict(check)} for check in self.checks]
        return {**dataclasses.asdict(self), "checks": checks}


def merged(known: Verdict | None, checks: Sequence[Check]) -> list[Check]:
    """The new checks, and those of the known verdict of other engines and forms."""
    tested = {(check.engine, check.form) for check in checks}
    others = () if known is None else known.checks
    return [*checks, *(check for check in others if (check.engine, check.form) not in tested)]


def judge(
    fingerprint: str,
    meant: EngineName,
    why: str,
    checks: Sequence[Check],
    at: str | None = None,
) -> Verdict:
    """The verdict that follows from the checks, where the engine `meant` is it because of `why`.

    The first form that passed is taken, in the order of the checks; else `torch_cpu`. `at` is when
    they were made; None: now.
    """
    at = at or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    tested = [check for check in checks if check.engine == meant]
    fit = next((check for check in tested if check.passed), None)
    if fit is not None:
        return Verdict(fingerprint, tuple(checks), meant, fit.form, why, at)
    if tested:
        why = f"{meant} can't be used: {tested[0].cause}"
    return Verdict(fingerprint, tuple(checks), "torch_cpu", "codes", why, at)


def read_verdict(folder: Path, fingerprint: str) -> Verdict | None:
    """The one in the home's engine folder if it is of this fingerprint and can be read."""
    content = read_json_file(folder / VERDICT_NAME)
    if content is None or content.get("fingerprint") != fingerprint:
        return None
    try:
        checks = tuple(_check(check) for check in content["checks"])
        fields = [field.name for field in dataclasses.fields(Verdict) if field.name != "checks"]
        return Verdict(checks=checks, **{name: content[name] for name in fields})
    except (KeyError, TypeError):
        return None


def write_verdict(folder: Path, verdict: Verdict) -> None:
    """Put it on the disk. Raises OSError."""
    write_json_file(folder / VERDICT_NAME, verdict.to_json())


def _check(content: dict[str, Any]) -> Check:
    return Check(**{f.name: content[f.name] for f in dataclasses.fields(Check)})
