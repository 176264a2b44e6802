"""What a version says of itself in `version.json`: how it was made and what was measured.

Examples are named by id; no text and no label is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from trainer.dataset import Dataset
from trainer.engine_switches import EngineSwitch
from trainer.evaluate import Evaluation, RowScore
from trainer.lora import TARGETS
from trainer.priors import majority_accuracy, recency_prior_accuracy
from trainer.spec import RunSpec


def version_manifest(
    spec: RunSpec,
    data: Dataset,
    *,
    before: Evaluation,
    active: Evaluation | None,
    after: Evaluation,
    original: Evaluation | str,
    forgotten: Mapping[int, int],
    steps: int,
    exact_resume_reason: str | None,
    engine: Mapping[str, Any],
    engine_switches: Sequence[EngineSwitch],
    prefix_cache: Mapping[str, Any] | None,
    validation: Mapping[str, Any] | None,
    seconds: float,
) -> dict[str, Any]:
    """All of it but the hashes of the files, JSON-able.

    Args:
        spec: what the run was asked to do.
        data: the examples that are left at the end.
        before: the scores of the bare base on the rows of `data.holdout`.
        active: the same of the version that was active when the run began, if there was one.
        after: the same of the new adapter.
        original: the same of it on the base model as it was before lorad kept it in few bits, or
            why that isn't known.
        forgotten: after how many steps the run forgot an example that was deleted, by id.
        steps: taken.
        exact_resume_reason: why it isn't the run that one process would have made, if it isn't.
        engine: the engine's report.
        engine_switches: after which steps another engine took over, and why.
        prefix_cache: what the run's last process read, computed and kept of the layers below the
            adapted ones; None where it kept none.
        validation: what was measured on the examples held back and which step was chosen; None
            without such.
        seconds: worked.
    """
    labels = {example.id: example.label for example in data.holdout.values()}
    return {
        "manifest_version": 1,
        "run_id": spec.run_id,
        "adapter_id": spec.adapter_id,
        "base_model": spec.model_name,
        "base_hash": spec.base_hash,
        "method": spec.method,
        "rank": spec.rank,
        "alpha": spec.alpha,
        "targets": [target for target in TARGETS if target in spec.targets],
        "use_rslora": spec.use_rslora,
        "top_layers": spec.top_layers,
        "warm_start": None if spec.warm_start is None else asdict(spec.warm_start),
        "steps": steps,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "exact_resume": exact_resume_reason is None,
        "exact_resume_reason": exact_resume_reason,
        "metrics": {
            "train": len(data.train),
            "holdout": len(data.holdout),
            "before": before.summary(labels),
            "after": after.summary(labels),
            "active": None if active is None else active.summary(labels),
            "original_base": _on_original(original, labels),
            **_priors(spec, data),
        },
        "holdout_rows": [
            {"example_id": new.example_id, "before": _row(old), "after": _row(new)}
            for old, new in zip(before.rows, after.rows, strict=True)
        ],
        "engine": engine,
        "engine_switches": list(engine_switches),
        "prefix_cache": prefix_cache,
        "validation": validation,
        "seconds": round(seconds, 1),
        "skipped_example_ids": sorted(forgotten),
        "forgotten": [
            {"example_id": example_id, "from_step": step}
            for example_id, step in sorted(forgotten.items())
        ],
        "cut_example_ids": sorted(data.cut),
    }


def _on_original(
    original: Evaluation | str, labels: Mapping[int, str]
) -> dict[str, float | str | None]:
    if isinstance(original, str):
        return {**Evaluation([]).summary(labels), "reason": original}
    return {**original.only(labels).summary(labels), "reason": None}


def _priors(spec: RunSpec, data: Dataset) -> dict[str, float | None]:
    if spec.labels is None:
        return {"majority_accuracy": None, "recency_prior_accuracy": None}
    known = [*data.train.values(), *data.validation.values()]
    history = [(example.id, example.label) for example in known]
    holdout = [(example.id, example.label) for example in data.holdout.values()]
    return {
        "majority_accuracy": majority_accuracy(
            [label for _, label in history], [label for _, label in holdout]
        ),
        "recency_prior_accuracy": recency_prior_accuracy(history, holdout),
    }


def _row(score: RowScore) -> dict[str, Any]:
    return {"predicted": score.predicted, "label_nll": score.label_nll}
