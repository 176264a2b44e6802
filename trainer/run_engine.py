"""The engine of one run: opened with care, its switches kept, one report for all processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npu.engine import Engine
from npu.engine_guard import EngineGuard
from npu.ledger import padded_share
from npu.opening import open_engine
from npu.weights import FrozenWeights
from trainer.engine_switches import EngineSwitches
from trainer.environment import environment_record, merge_engine_reports
from trainer.models.config import DecoderConfig
from trainer.models.decoder import NOT_ON_ENGINE
from trainer.models.layout import matrices_multiplied_by
from trainer.run_state import RunState
from trainer.spec import RunSpec


class RunEngine:
    """An open engine and what the run's earlier processes did with theirs."""

    def __init__(self, weights: FrozenWeights, spec: RunSpec, guard: EngineGuard) -> None:
        """Open the spec's engine; compiled graphs are kept beside what the guard knows."""
        options = spec.engine_options(guard.folder / "contexts")
        config = DecoderConfig.from_json(weights.metadata["config"])
        products = matrices_multiplied_by(config)
        self.engine: Engine = open_engine(weights, spec.engine, options, guard, products)
        self.switches = EngineSwitches()
        self._guard = guard
        self._base_hash = weights.content_hash
        self._earlier_report: dict[str, Any] | None = None

    def resume(self, state: RunState, step: int) -> None:
        """Go on from a checkpoint."""
        self._earlier_report = dict(state.engine)
        before = str(state.environment.get("engine", state.engine["engine"]))
        self.switches.resume(state.engine_switches, before, step, self.engine.report())

    def used(self, step: int) -> str | None:
        """Call it when the model has computed something; in words why the engine was given up.

        The answer is not None once, at the first call after that.
        """
        self._guard.first_product_done()
        if self.engine.ledger.given_up is None:  # a report after every step would cost more
            return None
        return self.switches.look(step, self.engine.report())

    def report(self) -> dict[str, Any]:
        """Of all the run's processes; the weights' hash beside the engine's `precision`.

        `padded_share`: how much of what was computed were rows of zeros that filled buckets up.
        """
        report = self.engine.report()
        if self._earlier_report is not None:
            report = merge_engine_reports(self._earlier_report, report)
        return {
            **report,
            "padded_share": padded_share(report["rows"]),
            "base_hash": self._base_hash,
            "not_on_engine": list(NOT_ON_ENGINE),
        }

    def environment(self, at_once: Mapping[str, int]) -> dict[str, Any]:
        """See `trainer.environment`; of this process."""
        return environment_record(self.engine.report(), at_once)

    def said(self) -> Mapping[str, Any]:
        """What the events about the engine say of it."""
        return {"engine": self.report(), "engine_switches": list(self.switches)}
