"""What changed between two looks at the gates, as entries of the history."""

from collections.abc import Iterator, Sequence
from typing import Literal

from service.gates.verdict import GateVerdict

ChangeKind = Literal["gate-opened", "gate-closed"]

_MIB = 1024 * 1024


def changes(
    before: Sequence[GateVerdict], after: Sequence[GateVerdict]
) -> Iterator[tuple[ChangeKind, str]]:
    """The kind and the message of each change, with reading, limit, age and reason.

    A closed gate that can be passed now, or no longer, has changed, too.
    """
    for old, new in zip(before, after, strict=True):
        if (old.open, old.overridable) != (new.open, new.overridable):
            yield ("gate-opened" if new.open else "gate-closed"), _message(new)


def _message(verdict: GateVerdict) -> str:
    state = "open" if verdict.open else "closed"
    if not verdict.open and verdict.overridable:
        state = "closed, train:override passes"
    figures = [f"reading {_in_words(verdict.reading, verdict.unit)}"]
    if verdict.limit is not None:
        figures.append(f"limit {_in_words(verdict.limit, verdict.unit)}")
    if verdict.age_seconds is not None:
        figures.append(f"{verdict.age_seconds:.0f} s old")
    return f"{verdict.name} is {state} ({', '.join(figures)}): {verdict.reason}"


def _in_words(value: float | bool | None, unit: str | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "bytes":
        return f"{value / _MIB:.0f} MiB"
    return f"{value:.4g} {unit}"
