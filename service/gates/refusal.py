"""Why the gates let nothing train, in one sentence."""

from collections.abc import Sequence

from service.gates.verdict import GateVerdict


def refusal(verdicts: Sequence[GateVerdict], *, override: bool) -> str | None:
    """All closed gates that stand in the way, the most important first; None if none does.

    Those that nobody can pass come first, else they keep their order. What is unknown for one
    reason is told once: one silent program is all that three gates have. ``override`` passes the
    closed gates that are overridable.
    """
    in_the_way = [
        verdict
        for verdict in verdicts
        if not verdict.open and not (override and verdict.overridable)
    ]
    in_the_way.sort(key=lambda verdict: verdict.overridable)  # stable
    unknown: dict[str, list[str]] = {}
    for verdict in in_the_way:
        if verdict.unknown is not None:
            unknown.setdefault(verdict.unknown.why, []).append(verdict.unknown.subject)
    told = []
    for verdict in in_the_way:
        if verdict.unknown is None:
            told.append(verdict.reason)
            continue
        subjects = unknown.pop(verdict.unknown.why, [])
        if len(subjects) == 1:
            told.append(verdict.reason)
        elif subjects:
            told.append(_unknown(subjects, verdict.unknown.why))
    return "; ".join(told) or None


def _unknown(subjects: list[str], why: str) -> str:
    *first, last = subjects
    return f"{', '.join(first)} and {last} are not known: {why}, and training waits until they are"
