"""One run, from its spec to a published version; resumable at every step.

    load model and data ─▶ resume? ─▶ measure the base ─▶ steps ⟲ checkpoints ─▶ measure ─▶ version

What it does: LoRA by the spec's method, from a fresh adapter or a version's; loss on answer tokens
only; AdamW with warm-up and decay; checkpoints by steps and by time, more often and with less at
once where a run was often killed; the holdout measured before and after by one ruler; a PEFT folder
with its measurements. What it refuses: another base than the spec names, a checkpoint of another
computation, an adapter that training left unchanged, numbers that aren't finite.

An example that is deleted, expires or is corrected while the run is at work is forgotten: from the
next step on nothing is computed from its text, and its scores go. The ids at the start and the step
after which each was forgotten are the run's data, so a resumed run is the same run. One that was
corrected while the run stood still is trained on as it is, and the version says so.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from npu.engine_guard import EngineGuard
from npu.weights import FrozenWeights
from trainer.checkpoint import Checkpoint, finish_replacing, load_newest_checkpoint
from trainer.checkpointing import Checkpointing
from trainer.dataset import TokenExample, batch_ids
from trainer.determinism import be_deterministic
from trainer.durable import ensure_folder, remove_unfinished
from trainer.environment import first_difference
from trainer.evaluate import Evaluation, evaluate
from trainer.halving import halved_intervals
from trainer.lora import LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.methods.method import Method
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.optimizer import Optimizer, learning_rate_at
from trainer.original_base import Original, measured_on_original
from trainer.publishing import check_worth_publishing, publish_version
from trainer.run_adapter import active_adapter, begin_warm, fresh_adapter
from trainer.run_engine import RunEngine
from trainer.run_examples import RunExamples, UnreadableError
from trainer.run_plan import RunPlan
from trainer.run_prefix import run_prefix
from trainer.run_questions import RunQuestions
from trainer.run_requests import Emit, Requests, StopRequested
from trainer.run_state import RunState
from trainer.spec import RunSpec
from trainer.step_event import step_event
from trainer.tokens import ChatTokenizer
from trainer.validation import Validation
from trainer.version_manifest import version_manifest


class RunError(RuntimeError):
    """The run can't produce a version; the message says why in one sentence."""


class Run:
    """A run in this process."""

    def __init__(
        self,
        spec: RunSpec,
        home: Path,
        emit: Emit,
        requests: Requests,
        guard: EngineGuard,
        halvings: int = 0,
    ) -> None:
        """Bind spec and surroundings; nothing is loaded yet.

        Args:
            spec: what to do.
            home: lorad's home folder.
            emit: where events go.
            requests: what is asked of the run from outside.
            guard: of its engine; whoever made it closes it when the process ends in order.
            halvings: how often its checkpoint interval and its memory budget are halved.
        """
        self.spec, self.home, self._emit, self._requests = spec, home, emit, requests
        self._guard = guard
        self.step = 0
        self._checkpoints = home / "runs" / str(spec.run_id) / "checkpoints"
        self._version = Path("adapters") / str(spec.adapter_id) / "versions"
        self._version /= f"run-{spec.run_id:08d}"
        self._halvings = halvings
        intervals = halved_intervals(spec.training, halvings)
        self.checkpointing = Checkpointing(home, self._checkpoints, spec, intervals)
        self._before: Evaluation | None = None
        self._active: Evaluation | None = None
        self._unreadable: str | None = None
        self._exact_reason: str | None = None
        self._earlier_seconds = 0.0
        self._started = time.monotonic()

    def execute(self) -> None:
        """Do whatever is left to do.

        Raises:
            StopRequested: after the checkpoint.
            RunError, UnchangedError, ValueError, FloatingPointError: the run has failed.
            OSError: a checkpoint or the version can't be written; what was there before stays.
        """
        remove_unfinished(self._checkpoints)  # this process holds the only worker's lock
        remove_unfinished((self.home / self._version).parent, "run-")
        finish_replacing(self._checkpoints)
        if not (self.home / self._version).exists():
            self._produce_version()
        ensure_folder((self.home / self._version).parent, self.home)
        self._emit("version", {"path": str(self._version)})
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    def _produce_version(self) -> None:
        self._emit("phase", {"phase": "loading"})
        self._load()
        self._resume()
        if self._before is None:
            self._measure_before()
        self._train()
        self.validation.restore(self.adapter)
        check_worth_publishing(self.adapter, self.step)
        self._emit("phase", {"phase": "evaluating_after"})
        after = self._measure(self.adapter, self.examples.data.holdout)
        self._emit("phase", {"phase": "evaluating_original"})
        measure = partial(self._measure, self.adapter, self.examples.data.holdout)
        original = measured_on_original(self.home, self.spec, self.plan, measure)
        self._emit("phase", {"phase": "exporting"})
        self._heed_deletions(unasked=True)
        self._stop_if_asked()
        self._publish(after.only(self.examples.data.holdout), original)

    def _load(self) -> None:
        spec = self.spec
        model_dir = self.home / "models" / spec.model_name
        weights = FrozenWeights.open(model_dir / "weights.lorad", verify=True)
        if weights.content_hash != spec.base_hash:
            raise RunError(
                f"expected base model {spec.model_name} with {spec.base_hash}, found"
                f" {weights.content_hash}; adapters belong to one base, so make a new adapter"
            )
        be_deterministic()
        self.engine = RunEngine(weights, spec, self._guard)
        self.config = DecoderConfig.from_json(weights.metadata["config"])
        self.decoder = Decoder(self.config, weights, self.engine.engine)
        self.tokenizer = ChatTokenizer.load(model_dir)
        self.examples = RunExamples(self.home, spec, self.tokenizer)
        for example_id, tokens in self.examples.data.cut.items():
            self._emit("cut", {"example_id": example_id, "tokens": tokens})
        self.adapter = fresh_adapter(self.config, spec)
        self._answers = {one: self.tokenizer.answer_ids(one) for one in spec.labels or ()}
        self.plan = RunPlan(
            spec, weights, self.engine.engine, self.adapter, self._answers, self._halvings
        )
        self.questions = RunQuestions(
            self.home, spec, self.decoder, self.tokenizer, self.plan, self._requests, self._emit
        )
        self.optimizer = Optimizer(self.adapter, spec.training)
        self.validation = Validation(spec)
        self.prefix = run_prefix(self.home, spec, self.decoder, self.adapter, self.examples)
        below = None if self.prefix is None else self.prefix.rows
        self.method: Method = FirstOrder.by_plan(
            self.decoder, self.adapter, self.plan.amounts, below
        )

    def _resume(self) -> None:
        checkpoint = load_newest_checkpoint(self._checkpoints, self.spec)
        outdated = False
        asked_for = self.plan.without_halvings.numbers()
        if checkpoint is None:
            begin_warm(self.home, self.adapter, self.spec)
            self._forget(self.examples.missing())
            self.validation.begin(self.examples.data)
            now = self._environment()
            self._exact_reason = first_difference({**now, **asked_for}, now)
        else:
            state = RunState.from_json(checkpoint.state)
            self.step = checkpoint.step
            self.adapter.load_arrays(checkpoint.adapter)
            self.optimizer.load_arrays(checkpoint.optimizer, state.optimizer_steps)
            self._before, self._active = state.before, state.active
            self._earlier_seconds = state.seconds
            self.engine.resume(state, self.step)
            self.examples.forgotten = dict(state.forgotten)
            self._forget(self.examples.missing())
            self.validation.begin(self.examples.data, state.validation, checkpoint.best)
            self._exact_reason = (
                state.exact_resume_reason
                or first_difference({**asked_for, **state.environment}, self._environment())
                or self.examples.correction_since(state)
            )
            outdated = state.digests is not None or self.examples.forgotten != state.forgotten
        self._emit(
            "started",
            {
                "total_steps": self.spec.total_steps,
                "resumed_from": None if checkpoint is None else checkpoint.step,
                **self.engine.said(),
                "exact_resume": self._exact_reason is None,
                "exact_resume_reason": self._exact_reason,
            },
        )
        if self.examples.forgotten:
            self._emit_forgot()
        if outdated:
            self._save(replacing=True)

    def _heed_deletions(self, *, unasked: bool = False) -> bool:
        """Forget examples whose text is no longer there; True if there were such.

        It looks when the daemon says so, or `unasked`, because a notice can be lost. If it can't
        be read the run stops at the next chance: going on could mean to train on what was deleted.
        """
        if not (self._requests.examples_changed() or unasked):
            return False
        try:
            gone = self.examples.gone()
        except UnreadableError as error:
            self._unreadable = str(error)
            return False
        if gone:
            self._forget(gone)
            self._emit_forgot()
        return bool(gone)

    def _forget(self, ids: Sequence[int]) -> None:
        self.examples.forget(ids, self.step)
        kept = self.examples.data
        self._before = self._before and self._before.only(kept.holdout)
        self._active = self._active and self._active.only(kept.holdout)
        self.validation.forget(kept)
        if not kept.train:
            raise RunError("expected training examples, found none left; post some and train again")

    def _emit_forgot(self) -> None:
        self._emit("forgot", {"total": len(self.examples.forgotten), "step": self.step})

    def _reason_to_stop(self) -> str | None:
        return self._requests.reason_to_stop() or self._unreadable

    def _stop_if_asked(self) -> None:
        if reason := self._reason_to_stop():
            raise StopRequested(self.step, reason)

    def _rest(self) -> None:
        """Rest as the duty asks, outside of the steps; what is asked meanwhile is done at once."""
        while not self.questions.rested():
            self._heed_deletions()
            self._stop_if_asked()

    def _measure_before(self) -> None:
        self._emit("phase", {"phase": "evaluating_before"})
        holdout = self.examples.data.holdout
        self._before = self._measure(None, holdout)
        if (active := active_adapter(self.home, self.config, self.spec)) is not None:
            self._active = self._measure(active, holdout)
        self._save()

    def _computed(self) -> None:
        """The model has computed something: the engine may have been given up over it."""
        if reason := self.engine.used(self.step):
            self._exact_reason = self._exact_reason or reason
            self._emit("engine", self.engine.said())

    def _measure(
        self,
        adapter: LoraAdapter | None,
        examples: Mapping[int, TokenExample],
        original: Original | None = None,
    ) -> Evaluation:
        began = time.monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal began
            self._requests.pace.worked(time.monotonic() - began)
            self._computed()
            self._emit("evaluating", {"done": done, "total": total})
            self._heed_deletions()
            self._stop_if_asked()
            self._rest()
            began = time.monotonic()

        self._heed_deletions()
        return evaluate(
            self.decoder if original is None else original.decoder,
            adapter,
            examples,
            self._answers,
            progress,
            tokens_at_once=(original or self.plan.amounts).evaluation_tokens,
            logit_rows=self.plan.amounts.scored_rows,
        )

    def _train(self) -> None:
        spec, settings = self.spec, self.spec.training
        total = spec.total_steps
        peak = settings.peak_learning_rate(total)
        data = self.examples.data
        self.checkpointing.begin(self.step)
        self._emit("phase", {"phase": "training"})
        while self.step < total or self.validation.due(self.step, data):
            if self._heed_deletions():
                self._save(replacing=True)
            if self._reason_to_stop():
                self._save()
                self._stop_if_asked()
            if not self.questions.rested():
                continue
            if self.validation.due(self.step, data):
                self._validate()
                if self.validation.exhausted:
                    return
                continue
            began = time.monotonic()
            fitted = self.validation.fitted_ids
            ids = batch_ids(fitted, settings.seed, settings.batch_size, self.step)
            batch = [data.train[i] for i in ids if i in data.train]
            rate = learning_rate_at(self.step, total, peak, settings)
            if batch:
                result = self.method.accumulate(batch)
                norm = self.optimizer.step(rate)
                self.step += 1
                seconds = time.monotonic() - began
                self._requests.pace.worked(seconds)
                event = step_event(spec, self.step, len(fitted), result, rate, norm, seconds)
                self._emit("step", event)
                self._computed()
            else:
                self.step += 1
            if self.checkpointing.due(self.step):
                self._save(replacing=self._heed_deletions(unasked=True))

    def _validate(self) -> None:
        """Measure the adapter on the examples held back; what is forgotten meanwhile is saved."""
        forgotten = len(self.examples.forgotten)
        try:
            found = self._measure(self.adapter, self.examples.data.validation)
        except StopRequested:
            self._save(replacing=len(self.examples.forgotten) > forgotten)
            raise
        self.validation.take(self.step, found, self.adapter)
        if len(self.examples.forgotten) > forgotten:
            self._save(replacing=True)

    def _save(self, *, replacing: bool = False) -> None:
        assert self._before is not None, "the base is measured before anything is saved"
        state = RunState(
            optimizer_steps=self.optimizer.steps_taken,
            before=self._before,
            active=self._active,
            engine=self.engine.report(),
            engine_switches=tuple(self.engine.switches),
            seconds=self._seconds(),
            environment=self._environment(),
            exact_resume_reason=self._exact_reason,
            changed_at=self.examples.data.changed_at,
            forgotten=self.examples.forgotten,
            validation=self.validation.state(),
        )
        checkpoint = Checkpoint(
            self.step,
            self.adapter.to_arrays(),
            self.optimizer.to_arrays(),
            state.to_json(),
            self.validation.best,
        )
        self.checkpointing.save(checkpoint, replacing=replacing)
        self._emit("checkpoint", {"step": self.step})
        self._emit("engine", self.engine.said())

    def _publish(self, after: Evaluation, original: Evaluation | str) -> None:
        data, spec = self.examples.data, self.spec
        manifest = version_manifest(
            spec,
            data,
            before=self._before or Evaluation([]),
            active=self._active,
            after=after,
            original=original,
            forgotten=self.examples.forgotten,
            steps=self.step,
            exact_resume_reason=self._exact_reason,
            engine=self.engine.report(),
            engine_switches=list(self.engine.switches),
            prefix_cache=None if self.prefix is None else self.prefix.report(),
            validation=self.validation.report(data),
            seconds=self._seconds(),
        )
        publish_version(self.home, self._version, self.adapter, manifest)

    def _environment(self) -> dict[str, Any]:
        return self.engine.environment(self.plan.amounts.numbers())

    def _seconds(self) -> float:
        other = self._requests.pace.rested + self.questions.seconds
        return self._earlier_seconds + time.monotonic() - self._started - other
