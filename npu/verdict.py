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
from npu.library_path import LibraryPath

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
    loaded: bool = True
    """Whether the libraries it needs could be loaded, as far as that can be told."""

    @property
    def name(self) -> str:
        """For people."""
        return self.engine if self.engine == "torch_cpu" else f"{self.engine} (form {self.form})"

    @property
    def settled(self) -> bool:
        """Whether it needs no other test."""
        return self.passed or not self.again


@dataclass(frozen=True)
class Trial:
    """One way to the user's libraries, tried with a self-test in a process of its own."""

    path: LibraryPath
    passed: bool
    cause: str | None = None
    """Why not, in one sentence."""
    remedy: str | None = None
    """What to do about it, in one sentence."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """The checks on one device, and what follows."""

    fingerprint: str
    checks: tuple[Check, ...]
    engine: EngineName
    form: str
    why: str
    at: str
    library_path: LibraryPath | None = None
    """How a process that uses the NPU is to look for the user's libraries; None: it needn't."""
    trials: tuple[Trial, ...] = ()
    """What was tried to find that out."""

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
    *,
    library_path: LibraryPath | None = None,
    trials: Sequence[Trial] = (),
) -> Verdict:
    """The verdict that follows from the checks, where the engine `meant` is it because of `why`.

    The first form that passed is taken, in the order of the checks; else `torch_cpu`. `at` is when
    they were made; None: now. `library_path` and `trials` are what a search for the user's
    libraries has found.
    """
    at = at or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    tested = [check for check in checks if check.engine == meant]
    fit = next((check for check in tested if check.passed), None)
    engine, form = (meant, fit.form) if fit is not None else ("torch_cpu", "codes")
    if tested and fit is None:
        why = f"{meant} can't be used: {tested[0].cause}"
    return Verdict(fingerprint, tuple(checks), engine, form, why, at, library_path, tuple(trials))


def read_verdict(folder: Path, fingerprint: str) -> Verdict | None:
    """The one in the home's engine folder if it is of this fingerprint and can be read."""
    content = read_json_file(folder / VERDICT_NAME)
    if content is None or content.get("fingerprint") != fingerprint:
        return None
    try:
        path = content["library_path"]
        return Verdict(
            checks=tuple(_check(check) for check in content["checks"]),
            library_path=None if path is None else LibraryPath.from_json(path),
            trials=tuple(_trial(trial) for trial in content["trials"]),
            **{name: content[name] for name in _PLAIN},
        )
    except (KeyError, TypeError, AttributeError):
        return None


def write_verdict(folder: Path, verdict: Verdict) -> None:
    """Put it on the disk. Raises OSError."""
    write_json_file(folder / VERDICT_NAME, verdict.to_json())


_PLAIN = ("fingerprint", "engine", "form", "why", "at")


def _trial(content: dict[str, Any]) -> Trial:
    path = LibraryPath.from_json(content["path"])
    fields = [f.name for f in dataclasses.fields(Trial) if f.name != "path"]
    return Trial(path, **{name: content[name] for name in fields})


def _check(content: dict[str, Any]) -> Check:
    return Check(**{f.name: content[f.name] for f in dataclasses.fields(Check)})
