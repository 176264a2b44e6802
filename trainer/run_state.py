"""What a checkpoint remembers of a run beside its tensors, as JSON.

No text is in it and no label: examples are ids, times and scores. Earlier checkpoints held keyed
digests of the texts, and the labels beside the scores; they are read, the labels dropped and the
digests given out for one last comparison.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.engine_switches import EngineSwitch
from trainer.evaluate import Evaluation, RowScore
from trainer.validation import Measured, ValidationState

_ROW_FIELDS = {field.name for field in dataclasses.fields(RowScore)}


@dataclass(frozen=True)
class RunState:
    """A run after some step."""

    optimizer_steps: int
    before: Evaluation
    active: Evaluation | None
    """Of the version that was active when the run began; None if there was none."""
    engine: Mapping[str, Any]
    """The engine's report."""
    seconds: float
    """Worked so far, in all processes."""
    environment: Mapping[str, Any]
    """See `trainer.environment`; of an earlier lorad without the tokens computed at once."""
    exact_resume_reason: str | None
    changed_at: Mapping[int, int]
    """When each example's text was last changed (ms since 1970 UTC), by id."""
    forgotten: Mapping[int, int]
    """After how many steps the run forgot an example, by id."""
    engine_switches: Sequence[EngineSwitch] = ()
    """In the order in which they happened."""
    validation: ValidationState = field(default_factory=ValidationState)
    digests: Mapping[int, str] | None = None
    """Keyed digests by example id, of a checkpoint that has them in the place of `changed_at`."""

    def to_json(self) -> dict[str, Any]:
        """JSON-able; without digests."""
        return {
            "optimizer_steps": self.optimizer_steps,
            "before": _rows(self.before),
            "active": None if self.active is None else _rows(self.active),
            "engine": self.engine,
            "seconds": self.seconds,
            "environment": self.environment,
            "exact_resume_reason": self.exact_resume_reason,
            "changed_at": {str(key): value for key, value in self.changed_at.items()},
            "forgotten": {str(key): value for key, value in self.forgotten.items()},
            "engine_switches": list(self.engine_switches),
            "validation": _validation(self.validation),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> RunState:
        """Read what `to_json`, of this lorad or an earlier one, gave."""
        digests = state.get("digests")
        return cls(
            optimizer_steps=state["optimizer_steps"],
            before=_evaluation(state["before"]),
            active=None if state["active"] is None else _evaluation(state["active"]),
            engine=state["engine"],
            seconds=state["seconds"],
            environment=state["environment"],
            exact_resume_reason=state["exact_resume_reason"],
            changed_at={int(key): value for key, value in state.get("changed_at", {}).items()},
            forgotten={int(key): value for key, value in state.get("forgotten", {}).items()},
            engine_switches=tuple(state.get("engine_switches", ())),
            validation=_validation_state(state.get("validation")),
            digests=None if digests is None else {int(k): value for k, value in digests.items()},
        )


def _validation(state: ValidationState) -> dict[str, Any]:
    measured = [{"step": one.step, "rows": _rows(one.evaluation)} for one in state.measured]
    return {"ids": list(state.ids), "measured": measured, "best_step": state.best_step}


def _validation_state(state: Mapping[str, Any] | None) -> ValidationState:
    if state is None:  # of an earlier lorad, which held nothing back
        return ValidationState()
    measured = (Measured(one["step"], _evaluation(one["rows"])) for one in state["measured"])
    return ValidationState(tuple(state["ids"]), tuple(measured), state["best_step"])


def _rows(evaluation: Evaluation) -> list[dict[str, Any]]:
    return [dataclasses.asdict(row) for row in evaluation.rows]


def _evaluation(rows: list[dict[str, Any]]) -> Evaluation:
    return Evaluation(
        [RowScore(**{k: value for k, value in row.items() if k in _ROW_FIELDS}) for row in rows]
    )
