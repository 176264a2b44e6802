"""One run, from its spec to a published version; resumable at every step.

    load model and data ─▶ resume? ─▶ measure the base ─▶ steps ⟲ checkpoints ─▶ measure ─▶ version

What it does: LoRA by the spec's method; loss on answer tokens only; AdamW with warm-up and decay;
checkpoints by steps and by time; the holdout measured before and after by one ruler; a PEFT folder
with its measurements. What it refuses: another base than the spec names, a checkpoint of another
computation, an adapter that training left unchanged, numbers that aren't finite.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from npu.engine import Engine, open_engine
from npu.weights import FrozenWeights
from storage.database import Database
from trainer.checkpoint import Checkpoint, load_newest_checkpoint, save_checkpoint
from trainer.dataset import Dataset, batch_ids, load_dataset
from trainer.durable import file_sha256, published
from trainer.environment import environment_record, first_difference, merge_engine_reports
from trainer.evaluate import Evaluation, RowScore, evaluate
from trainer.export.peft import load_peft_folder, write_peft_folder
from trainer.lora import LoraAdapter
from trainer.methods.first_order import FirstOrder
from trainer.methods.method import BatchResult, Method
from trainer.models.config import DecoderConfig
from trainer.models.decoder import NOT_ON_ENGINE, Decoder
from trainer.optimizer import Optimizer, learning_rate_at
from trainer.priors import majority_accuracy, recency_prior_accuracy
from trainer.spec import RunSpec
from trainer.tokens import ChatTokenizer

Emit = Callable[[str, Mapping[str, Any]], None]
"""Sends one event: its name and its fields."""


class StopRequested(Exception):  # noqa: N818 - not an error: the run ends early and in order
    """The run was asked to stop and has left a checkpoint."""

    def __init__(self, step: int, reason: str) -> None:
        """Say after which step, and why."""
        super().__init__(reason)
        self.step, self.reason = step, reason


class RunError(RuntimeError):
    """The run can't produce a version; the message says why in one sentence."""


class Run:
    """A run in this process."""

    def __init__(
        self, spec: RunSpec, home: Path, emit: Emit, stop: Callable[[], str | None]
    ) -> None:
        """Bind spec and surroundings; nothing is loaded yet.

        Args:
            spec: what to do.
            home: lorad's home folder.
            emit: where events go.
            stop: gives the reason to stop as soon as there is one; asked between steps.
        """
        self.spec, self.home, self._emit, self._stop = spec, home, emit, stop
        self.step = 0
        self._checkpoints = home / "runs" / str(spec.run_id) / "checkpoints"
        self._version = Path("adapters") / str(spec.adapter_id) / "versions"
        self._version /= f"run-{spec.run_id:08d}"
        self._before: Evaluation | None = None
        self._active: Evaluation | None = None
        self._exact_reason: str | None = None
        self._earlier_report: dict[str, Any] | None = None
        self._earlier_seconds = 0.0
        self._started = time.monotonic()

    def execute(self) -> None:
        """Do whatever is left to do.

        Raises:
            StopRequested: after the checkpoint.
            RunError, ValueError, FloatingPointError: the run has failed.
        """
        self._remove_unfinished_folders()
        if not (self.home / self._version).exists():
            self._produce_version()
        self._announce_version()
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    def _remove_unfinished_folders(self) -> None:
        """What a killed worker left half-written; this process holds the only worker's lock."""
        for folder in (self._checkpoints, (self.home / self._version).parent):
            for unfinished in folder.glob(".tmp-*"):
                shutil.rmtree(unfinished, ignore_errors=True)

    def _produce_version(self) -> None:
        self._emit("phase", {"phase": "loading"})
        self._load()
        self._resume()
        if self._before is None:
            self._measure_before()
        self._train()
        self._emit("phase", {"phase": "evaluating_after"})
        after = self._measure(self.adapter)
        self._emit("phase", {"phase": "exporting"})
        self._publish(after)

    def _load(self) -> None:
        spec = self.spec
        model_dir = self.home / "models" / spec.model_name
        weights = FrozenWeights.open(model_dir / "weights.lorad", verify=True)
        if weights.content_hash != spec.base_hash:
            raise RunError(
                f"expected base model {spec.model_name} with {spec.base_hash}, found"
                f" {weights.content_hash}; adapters belong to one base, so make a new adapter"
            )
        torch.use_deterministic_algorithms(True)
        self.engine: Engine = open_engine(weights, spec.engine, threads=spec.threads)
        self.config = DecoderConfig.from_json(weights.metadata["config"])
        self.decoder = Decoder(self.config, weights, self.engine)
        self.tokenizer = ChatTokenizer.load(model_dir)
        self.data = self._load_data()
        self.adapter = self._fresh_adapter()
        self.optimizer = Optimizer(self.adapter, spec.training)
        self.method: Method = FirstOrder(
            self.decoder,
            self.adapter,
            micro_batch_tokens=spec.training.micro_batch_tokens,
            recompute=spec.training.recompute,
        )

    def _load_data(self) -> Dataset:
        database = Database.open_readonly(self.home / "lorad.db")
        try:
            data = load_dataset(database, self.spec, self.tokenizer)
        finally:
            database.close()
        if not data.train:
            raise RunError("expected training examples, found none left; post some and train again")
        for example_id, tokens in data.cut.items():
            self._emit("cut", {"example_id": example_id, "tokens": tokens})
        return data

    def _fresh_adapter(self) -> LoraAdapter:
        spec = self.spec
        return LoraAdapter(
            self.config,
            rank=spec.rank,
            alpha=spec.alpha,
            targets=spec.targets,
            use_rslora=spec.use_rslora,
            seed=spec.training.seed,
        )

    def _resume(self) -> None:
        checkpoint = load_newest_checkpoint(self._checkpoints, self.spec)
        if checkpoint is not None:
            state = checkpoint.state
            self.step = checkpoint.step
            self.adapter.load_arrays(checkpoint.adapter)
            self.optimizer.load_arrays(checkpoint.optimizer, state["optimizer_steps"])
            self._before = _evaluation(state["before"])
            self._active = _evaluation(state["active"])
            self._earlier_report = state["engine"]
            self._earlier_seconds = state["seconds"]
            self._exact_reason = (
                state["exact_resume_reason"]
                or first_difference(state["environment"], self._environment())
                or self._changed_examples(state["digests"])
            )
        self._emit(
            "started",
            {
                "total_steps": self.spec.total_steps,
                "resumed_from": None if checkpoint is None else checkpoint.step,
                "engine": self._report(),
                "exact_resume": self._exact_reason is None,
                "exact_resume_reason": self._exact_reason,
            },
        )

    def _changed_examples(self, digests: Mapping[str, str]) -> str | None:
        now = self.data.digests
        changed = [i for i in now if digests.get(str(i), now[i]) != now[i]]
        gone = [i for i in digests if int(i) not in now]
        if changed:
            return f"example {changed[0]} was changed while the run was under way"
        if gone:
            return f"example {gone[0]} was deleted while the run was under way"
        return None

    def _measure_before(self) -> None:
        self._emit("phase", {"phase": "evaluating_before"})
        self._before = self._measure(None)
        if self.spec.active_version is not None:
            active = self._fresh_adapter()
            load_peft_folder(self.home / self.spec.active_version, active)
            self._active = self._measure(active)
        self._save()

    def _measure(self, adapter: LoraAdapter | None) -> Evaluation:
        def progress(done: int, total: int) -> None:
            self._emit("evaluating", {"done": done, "total": total})
            if reason := self._stop():
                raise StopRequested(self.step, reason)

        answers = {label: self.tokenizer.answer_ids(label) for label in self.spec.labels or ()}
        return evaluate(self.decoder, adapter, list(self.data.holdout.values()), answers, progress)

    def _train(self) -> None:
        spec, settings = self.spec, self.spec.training
        total = spec.total_steps
        peak = settings.peak_learning_rate(total)
        saved_at, saved_step = time.monotonic(), self.step
        self._emit("phase", {"phase": "training"})
        while self.step < total:
            if reason := self._stop():
                self._save()
                raise StopRequested(self.step, reason)
            began = time.monotonic()
            ids = batch_ids(spec.train_example_ids, settings.seed, settings.batch_size, self.step)
            batch = [self.data.train[i] for i in ids if i in self.data.train]
            rate = learning_rate_at(self.step, total, peak, settings)
            if batch:
                result = self.method.accumulate(batch)
                norm = self.optimizer.step(rate)
                self.step += 1
                self._emit_step(result, rate, norm, time.monotonic() - began)
            else:
                self.step += 1
            now = time.monotonic()
            if (
                self.step - saved_step >= settings.checkpoint_every_steps
                or now - saved_at >= settings.checkpoint_every_seconds
                or self.step == total
            ):
                self._save()
                saved_at, saved_step = now, self.step

    def _emit_step(self, result: BatchResult, rate: float, norm: float, seconds: float) -> None:
        seen = self.step * min(self.spec.training.batch_size, len(self.spec.train_example_ids))
        self._emit(
            "step",
            {
                "step": self.step,
                "total": self.spec.total_steps,
                "epoch": seen / len(self.spec.train_example_ids),
                "loss": result.loss,
                "learning_rate": rate,
                "tokens": result.tokens,
                "label_tokens": result.label_tokens,
                "grad_norm": norm,
                "seconds": seconds,
            },
        )

    def _save(self) -> None:
        state = {
            "optimizer_steps": self.optimizer.steps_taken,
            "before": _rows(self._before),
            "active": _rows(self._active),
            "engine": self._report(),
            "seconds": self._seconds(),
            "environment": self._environment(),
            "exact_resume_reason": self._exact_reason,
            "digests": self.data.digests,
        }
        checkpoint = Checkpoint(
            self.step, self.adapter.to_arrays(), self.optimizer.to_arrays(), state
        )
        save_checkpoint(self._checkpoints, self.spec, checkpoint)
        self._emit("checkpoint", {"step": self.step})
        self._emit("engine", {"engine": state["engine"]})

    def _publish(self, after: Evaluation) -> None:
        spec = self.spec
        if not any(bool(lora_B.any()) for lora_B in self.adapter.lora_B.values()):
            raise RunError("expected training to change the adapter, found every lora_B still zero")
        with published(self.home / self._version) as folder:
            write_peft_folder(
                folder, self.adapter, base_model=spec.model_name, base_hash=spec.base_hash
            )
            files = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
            manifest = {**self._manifest(after), "files": files}
            text = json.dumps(manifest, indent=1, sort_keys=True)
            (folder / "version.json").write_text(text, encoding="utf-8")

    def _manifest(self, after: Evaluation) -> dict[str, Any]:
        spec, before = self.spec, self._before or Evaluation([])
        history = [(example.id, example.label) for example in self.data.train.values()]
        holdout = [(example.id, example.label) for example in self.data.holdout.values()]
        labelled = spec.labels is not None
        return {
            "manifest_version": 1,
            "run_id": spec.run_id,
            "adapter_id": spec.adapter_id,
            "base_model": spec.model_name,
            "base_hash": spec.base_hash,
            "method": spec.method,
            "rank": spec.rank,
            "alpha": spec.alpha,
            "targets": list(self.adapter.targets),
            "use_rslora": spec.use_rslora,
            "steps": self.step,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "exact_resume": self._exact_reason is None,
            "exact_resume_reason": self._exact_reason,
            "metrics": {
                "train": len(history),
                "holdout": len(holdout),
                "before": before.summary(),
                "after": after.summary(),
                "active": None if self._active is None else self._active.summary(),
                "majority_accuracy": majority_accuracy(
                    [label for _, label in history], [label for _, label in holdout]
                )
                if labelled
                else None,
                "recency_prior_accuracy": recency_prior_accuracy(history, holdout)
                if labelled
                else None,
            },
            "holdout_rows": [
                {
                    "example_id": new.example_id,
                    "label": new.label,
                    "before": {"predicted": old.predicted, "label_nll": old.label_nll},
                    "after": {"predicted": new.predicted, "label_nll": new.label_nll},
                }
                for old, new in zip(before.rows, after.rows, strict=True)
            ],
            "engine": self._report(),
            "seconds": round(self._seconds(), 1),
            "skipped_example_ids": self.data.skipped,
            "cut_example_ids": sorted(self.data.cut),
        }

    def _announce_version(self) -> None:
        self._emit("version", {"path": str(self._version)})

    def _environment(self) -> dict[str, Any]:
        return environment_record(self.engine.report())

    def _report(self) -> dict[str, Any]:
        report = self.engine.report()
        if self._earlier_report is not None:
            report = merge_engine_reports(self._earlier_report, report)
        return {**report, "not_on_engine": list(NOT_ON_ENGINE)}

    def _seconds(self) -> float:
        return self._earlier_seconds + time.monotonic() - self._started


def _rows(evaluation: Evaluation | None) -> list[dict[str, Any]] | None:
    if evaluation is None:
        return None
    return [dataclasses.asdict(row) for row in evaluation.rows]


def _evaluation(rows: list[dict[str, Any]] | None) -> Evaluation | None:
    return None if rows is None else Evaluation([RowScore(**row) for row in rows])
