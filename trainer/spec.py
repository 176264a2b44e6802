"""What one run was asked to do: `runs/<id>/spec.json`, written once by the daemon.

Everything that decides the numbers of a run is in here or in the data, so that a resumed run is the
same run.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from npu.engine_choice import RequestedEngine
from npu.engine_options import EngineOptions, RequestedForm
from npu.htp import soc_of_part

SPEC_VERSION = 1
MINIMUM_STEPS = 40
"""Fewer steps only teach the format of the labels (measured on 300-row sets, SmolLM2-135M)."""


class SpecError(ValueError):
    """The spec is not one this worker can follow; the message names the field."""


@dataclass(frozen=True)
class TrainingSettings:
    """How to optimise."""

    seed: int = 0
    batch_size: int = 8
    """Examples per optimizer step."""
    epochs: float = 2.0
    """Passes over the training examples if `steps` isn't given; at least `MINIMUM_STEPS` steps."""
    steps: int | None = None
    learning_rate: float | None = None
    """Peak rate; None chooses by the number of steps."""
    schedule: str = "linear"
    """Decay to zero after the warm-up: `linear`, `cosine`, or `constant` for none."""
    warmup_fraction: float = 0.1
    """Share of the steps that warm up, at most five steps."""
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    validation_fraction: float = 0.0
    """Share of the training examples that are held back; the adapter that does best on them, looked
    at every half pass, is the run's result. 0: all are trained on, and the last adapter is it."""
    patience: int | None = None
    """Training ends after so many looks that were no better than the best; None: never early."""
    checkpoint_every_steps: int = 10
    """Optimizer steps between two checkpoints, and so the most that a kill costs; fewer if the time
    below is over first, or if the run was often killed (`trainer.halving`)."""
    checkpoint_every_seconds: float = 120.0
    micro_batch_tokens: int | None = None
    """Tokens computed at once; a batch with more is accumulated. None: by `trainer.plan`."""
    recompute: bool | None = None
    """Keep only each layer's input and compute the layer again in the backward pass. None: where
    `trainer.plan` says so."""

    def total_steps(self, examples: int) -> int:
        """Optimizer steps of a run over this many training examples."""
        if self.steps is not None:
            return self.steps
        return max(MINIMUM_STEPS, math.ceil(self.epochs * examples / self.batch_size))

    def peak_learning_rate(self, total_steps: int) -> float:
        """The given rate, or 1e-3 for runs of 75 steps and more and 2e-3 for shorter ones."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 1e-3 if total_steps >= 75 else 2e-3


@dataclass(frozen=True)
class WarmStart:
    """The version whose adapter a run begins with."""

    version: int
    path: str
    """Of its folder, relative to the home."""


@dataclass(frozen=True)
class RunSpec:
    """One run of one adapter over fixed lists of examples."""

    run_id: int
    adapter_id: int
    method: str
    model_name: str
    base_hash: str
    rank: int
    alpha: float
    targets: tuple[str, ...]
    use_rslora: bool
    labels: tuple[str, ...] | None
    max_tokens: int
    train_example_ids: tuple[int, ...]
    holdout_example_ids: tuple[int, ...]
    active_version: str | None
    training: TrainingSettings
    engine: RequestedEngine
    threads: int
    form: RequestedForm = "auto"
    soc: str | None = None
    """The part to compile for, as SM8650; None: what the device says it is."""
    top_layers: int | None = None
    """How many layers, from the top, are adapted; None: all."""
    prefix_cache_mb: int = 0
    """With `top_layers`: how many MiB of what the layers below make of the examples are kept; 0:
    none, and they are computed packed, together with the layers above."""
    memory_mb: int | None = None
    """What the worker may take at its most, in MiB; None, of an earlier lorad: not bounded."""
    warm_start: WarmStart | None = None
    """None: it begins with a fresh adapter."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.training.total_steps(len(self.train_example_ids))

    def engine_options(self, cache_dir: Path) -> EngineOptions:
        """How the engine is to be opened; compiled graphs are kept in `cache_dir`."""
        return EngineOptions(
            threads=self.threads,
            form=self.form,
            soc=None if self.soc is None else soc_of_part(self.soc),
            cache_dir=cache_dir,
        )

    def shape(self) -> dict[str, Any]:
        """The settings a checkpoint must agree with to be resumed, JSON-able.

        What earlier checkpoints don't know is left out where it is as it was for them.
        """
        given: dict[str, Any] = {}
        if self.top_layers is not None:
            given["top_layers"] = self.top_layers
        if self.warm_start is not None:
            given["warm_start"] = self.warm_start.path
        training = dataclasses.asdict(self.training)
        if not self.training.validation_fraction:
            del training["validation_fraction"], training["patience"]
        return given | {
            "method": self.method,
            "rank": self.rank,
            "alpha": self.alpha,
            "targets": list(self.targets),
            "use_rslora": self.use_rslora,
            "max_tokens": self.max_tokens,
            "training": training,
        }

    @classmethod
    def load(cls, path: Path) -> RunSpec:
        """Read a spec file.

        Raises:
            SpecError: if a field is missing or not understood.
        """
        try:
            raw = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            raise SpecError(f"expected a whole {path.name}, found none; start a new run") from None
        if raw.get("spec_version") != SPEC_VERSION:
            raise SpecError(
                f"expected spec_version {SPEC_VERSION}, found {raw.get('spec_version')!r};"
                " daemon and trainer are of different releases, so restart the daemon"
            )
        if raw.get("engine") not in get_args(RequestedEngine):
            raise SpecError(
                f"expected an engine of {', '.join(get_args(RequestedEngine))},"
                f" found {raw.get('engine')!r}; restart the daemon with one of them"
            )
        form, soc = raw.get("form", "auto"), raw.get("soc") or None
        if form not in get_args(RequestedForm):
            raise SpecError(
                f"expected a form of {', '.join(get_args(RequestedForm))}, found {form!r}; restart"
                " the daemon with one of them"
            )
        try:
            soc is None or soc_of_part(soc)
        except ValueError as error:
            raise SpecError(str(error)) from error
        known = {field.name for field in dataclasses.fields(TrainingSettings)}
        start = raw.get("warm_start")
        try:
            labels = raw["labels"]
            return cls(
                run_id=raw["run_id"],
                adapter_id=raw["adapter_id"],
                method=raw["method"],
                model_name=raw["model"]["name"],
                base_hash=raw["model"]["base_hash"],
                rank=raw["rank"],
                alpha=float(raw["alpha"]),
                targets=tuple(raw["targets"]),
                use_rslora=raw["use_rslora"],
                labels=None if labels is None else tuple(labels),
                max_tokens=raw["max_tokens"],
                train_example_ids=tuple(raw["train_example_ids"]),
                holdout_example_ids=tuple(raw["holdout_example_ids"]),
                active_version=raw["active_version"],
                training=TrainingSettings(
                    **{key: value for key, value in raw["training"].items() if key in known}
                ),
                engine=raw["engine"],
                threads=raw["threads"],
                form=form,
                soc=soc,
                top_layers=raw.get("top_layers"),
                prefix_cache_mb=raw.get("prefix_cache_mb", 0),
                memory_mb=raw.get("memory_mb"),
                warm_start=None if start is None else WarmStart(start["version"], start["path"]),
            )
        except KeyError as missing:
            raise SpecError(f"expected the field {missing} in {path.name}, found none") from missing
