"""When another engine took over a run's frozen products, and why.

An engine may be given up within a process, after products that it failed, or between two: what one
worker crashed with isn't opened by the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

EngineSwitch = TypedDict("EngineSwitch", {"step": int, "from": str, "to": str, "why": str})
"""After so many steps the products went from one engine to another."""


class EngineSwitches:
    """The switches of one run, in all its processes."""

    def __init__(self) -> None:
        """None so far."""
        self._made: list[EngineSwitch] = []

    def __iter__(self) -> Iterator[EngineSwitch]:
        """In the order in which they happened."""
        return iter(self._made)

    def resume(
        self,
        earlier: Sequence[EngineSwitch],
        checkpoint_engine: str,
        step: int,
        report: Mapping[str, Any],
    ) -> None:
        """Go on from a checkpoint.

        Args:
            earlier: its switches.
            checkpoint_engine: the engine it was opened with.
            step: of the checkpoint.
            report: of the engine that is open now.
        """
        self._made = list(earlier)
        last = self._made[-1]["to"] if self._made else checkpoint_engine
        self._note(step, last, report["engine"], report["why"])

    def look(self, step: int, report: Mapping[str, Any]) -> str | None:
        """Note, once, that the engine was given up in this process; a sentence about it then."""
        given_up = report.get("given_up")
        if not given_up or (self._made and self._made[-1]["to"] == "torch_cpu"):
            return None
        self._note(step, report["engine"], "torch_cpu", given_up["cause"])
        return f"engine was {report['engine']} and is now torch_cpu"

    def _note(self, step: int, before: str, after: str, why: str) -> None:
        if before != after:
            self._made.append({"step": step, "from": before, "to": after, "why": why})
