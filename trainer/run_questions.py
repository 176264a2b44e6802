"""Questions that a training worker answers between its steps, with another adapter than it trains.

What answers is the base model that is loaded already and the version that is asked, never the
adapter in training. Nothing that training computes with is written to: not the adapter, not the
optimizer, not torch's own generator. So losses and adapter are the same bits with questions and
without; the engine's counts include what was computed for them.
"""

from __future__ import annotations

import time
from pathlib import Path

from trainer.memory import lasting_bytes
from trainer.models.decoder import Decoder
from trainer.predict.answering import Answering
from trainer.predict.base import OpenBase
from trainer.predict.question import Head
from trainer.predict.refused import Refused
from trainer.predict.room import room_to_predict
from trainer.predict.shelf import AdapterShelf
from trainer.run_plan import RunPlan
from trainer.run_requests import Emit, Requests
from trainer.spec import RunSpec
from trainer.tokens import ChatTokenizer


class RunQuestions:
    """Answers with what a run has loaded."""

    def __init__(
        self,
        home: Path,
        spec: RunSpec,
        decoder: Decoder,
        tokenizer: ChatTokenizer,
        plan: RunPlan,
        requests: Requests,
        emit: Emit,
    ) -> None:
        """Bind them; the memory for a question is what the plan keeps free between two steps."""
        self._spec, self._inbox, self._pace = spec, requests.questions, requests.pace
        whole = sum(plan.predicted.values())
        budget = whole if plan.budget is None else max(whole, plan.budget)
        self._base = OpenBase(
            decoder,
            tokenizer,
            AdapterShelf(home, decoder.config, spec.base_hash, 0),
            room_to_predict(plan.work, budget, lasting_bytes(plan.work, plan.amounts)),
        )
        self._answering = Answering(self._inbox, emit, self._base_for, requests.reason_to_stop)
        self.seconds = 0.0
        """What answering took."""

    def rested(self) -> bool:
        """Between two steps: answer what was asked, then rest as the duty asks.

        False if something came meanwhile; see `Pace.rest`.
        """
        self._answer()
        return self._pace.rest()

    def _answer(self) -> None:
        """Answer all that wait, which counts as work to be rested for."""
        began = time.monotonic()
        while (raw := self._inbox.take(wait=False)) is not None:
            self._answering.answer(raw)
        self._base.adapters.clear()
        seconds = time.monotonic() - began
        self.seconds += seconds
        self._pace.worked(seconds)

    def _base_for(self, head: Head) -> OpenBase:
        if head.base_hash != self._spec.base_hash:
            raise Refused(
                503,
                f"expected a question for {self._spec.model_name}, which is in training, found one"
                f" for {head.model}; ask again when the training has ended",
            )
        return self._base
