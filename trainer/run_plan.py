"""The plan of one run, from its spec and what it has opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npu.engine import Engine
from npu.weights import FrozenWeights
from trainer.lora import LoraAdapter
from trainer.memory import MIB, Amounts, Work, predicted
from trainer.plan import Choices, plan
from trainer.spec import RunSpec


class RunPlan:
    """How much a run computes at once, and what it keeps."""

    def __init__(
        self,
        spec: RunSpec,
        weights: FrozenWeights,
        engine: Engine,
        adapter: LoraAdapter,
        label_answers: Mapping[str, Sequence[int]],
        halvings: int,
    ) -> None:
        """Settle it; see `trainer.plan`. Examples that are deleted change none of it.

        Raises:
            BudgetError: if the run can't stay within the spec's memory.
        """
        work = Work.of(
            adapter,
            weights,
            engine,
            longest_example=spec.max_tokens,
            longest_evaluation=spec.max_tokens
            + sum(len(answer) - 1 for answer in label_answers.values()),
            examples=len(spec.train_example_ids) + len(spec.holdout_example_ids),
        )
        self.work = work
        budget = None if spec.memory_mb is None else spec.memory_mb * MIB
        choices = Choices(spec.training.micro_batch_tokens, spec.training.recompute)
        self.budget = budget
        """Bytes that the process may take; None: not bounded."""
        self.amounts: Amounts = plan(work, budget, choices, halvings)
        self.without_halvings: Amounts = plan(work, budget, choices)
        self.predicted = predicted(work, self.amounts)
        """Bytes at the peak, by what they are for."""
