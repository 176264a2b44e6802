"""What the numbers of a run depend on besides spec and data.

Floating-point sums depend on the order in which threads and vector units add; a run that goes on
under another library, processor or thread count is still a good run, but not bit for bit the same
one, and its version says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ARITHMETIC = 3
"""Which order of sums lorad itself has; raised when equal settings give other last bits than the
lorad before. 1, and not recorded, was the one with autograd; since 3 what is thin is transposed
and each thread has sums of its own in the gradient of an attention."""


def environment_record(
    engine_report: Mapping[str, Any], at_once: Mapping[str, int]
) -> dict[str, Any]:
    """Libraries, processor, threads, engine, and how lorad computes, JSON-able."""
    return {
        **at_once,
        "arithmetic": ARITHMETIC,
        "threads": engine_report["threads"],
        "engine": engine_report["engine"],
        "form": engine_report["form"],
        **{f"version of {name}": value for name, value in engine_report["versions"].items()},
    }


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """A sentence about the first thing that changed, or None."""
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            return f"{key} was {before.get(key)} and is now {now.get(key)}"
    return None


def merge_engine_reports(earlier: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[str, Any]:
    """One report for all processes of a run: counts summed, the rest as the latest says."""
    merged = dict(latest)
    for group in ("products", "seconds"):
        merged[group] = {
            engine: {
                kind: earlier[group].get(engine, {}).get(kind, 0)
                + latest[group].get(engine, {}).get(kind, 0)
                for kind in ("forward", "recompute", "input_gradient")
            }
            for engine in sorted(earlier[group].keys() | latest[group].keys())
        }
    merged["rows"] = {key: earlier["rows"][key] + latest["rows"][key] for key in latest["rows"]}
    for events in ("fallbacks", "repeats", "rails"):
        merged[events] = [*earlier.get(events, ()), *latest.get(events, ())]
    merged["given_up"] = latest.get("given_up") or earlier.get("given_up")
    return merged
