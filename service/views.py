"""Rows of the database as the answers of the API."""

from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session

from api_schemas.adapters import Adapter as AdapterAnswer
from api_schemas.adapters import ExampleCounts, Retention
from api_schemas.examples import Example as ExampleAnswer
from api_schemas.nights import NightOptions, Why
from api_schemas.runs import Run as RunAnswer
from api_schemas.runs import Setbacks
from api_schemas.training import TrainingOptions
from api_schemas.versions import Imported, Metrics, VersionDetail
from api_schemas.versions import Version as VersionAnswer
from service.home import Home
from service.versions.files import are_gone
from storage import example_labels, runs, versions
from storage.examples import Counts
from storage.tables import Adapter, Example, Run, Version


def timestamp(milliseconds: int) -> str:
    """Milliseconds since 1970 UTC as ISO 8601."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(moment: datetime) -> str:
    """A moment (aware) as ISO 8601 in UTC."""
    return timestamp(int(moment.timestamp() * 1000))


def adapter_answer(
    session: Session, home: Home, row: Adapter, counts: Counts, why: Why
) -> AdapterAnswer:
    """An adapter with its examples counted, its unfinished run and its active version."""
    run = runs.unfinished(session, row.id)
    training = run is not None and run.status == "running"
    active = versions.active(session, row.id)
    return AdapterAnswer(
        name=row.name,
        base_model=row.base_model,
        base_hash=row.base_hash,
        method=row.method,
        rank=row.rank,
        alpha=row.alpha,
        targets=row.targets,
        use_rslora=row.use_rslora,
        top_layers=row.top_layers,
        labels=row.labels,
        max_tokens=row.max_tokens,
        too_long=row.too_long,
        training=TrainingOptions.model_validate(row.training),
        night=NightOptions.model_validate(row.night),
        retention=Retention(
            keep_days=row.keep_days,
            max_examples=row.max_examples,
            keep_versions=row.keep_versions,
        ),
        revision=row.revision,
        examples=ExampleCounts(
            train=counts.train,
            holdout=counts.holdout,
            pending=counts.pending,
            used=counts.used,
            expired=counts.expired,
            bytes=counts.bytes,
        ),
        current_run=None if run is None else run_answer(run, row.name, None),
        active_version=None if active is None else version_answer(home, active),
        not_training_because=None if training else why.says,
        why=why,
        created_at=timestamp(row.created_at),
    )


def example_answer(row: Example) -> ExampleAnswer:
    """An example."""
    return ExampleAnswer(
        id=row.id,
        input=row.input,
        label=row.label,
        split=row.split,
        status=row.status,
        external_id=row.external_id,
        created_at=timestamp(row.created_at),
        changed_at=timestamp(row.changed_at),
    )


def run_answer(row: Run, adapter: str, version: int | None) -> RunAnswer:
    """A run, with the number of the version it produced."""
    return RunAnswer(
        id=row.id,
        adapter=adapter,
        status=row.status,
        when="window" if row.in_window else "now",
        override=row.override,
        asked_by=row.origin,
        warm_start=row.warm_start,
        wanted=row.wanted,
        forgotten=row.forgotten,
        phase=row.phase,
        step=row.step,
        total_steps=row.total_steps,
        epoch=row.epoch,
        loss=row.loss,
        learning_rate=row.learning_rate,
        losses=[(int(step), loss) for step, loss in row.losses],
        evaluated=row.evaluated,
        evaluating_total=row.evaluating_total,
        resumed_from=row.resumed_from,
        checkpoint_step=row.checkpoint_step,
        goes_on_at=None if row.not_before is None else timestamp(row.not_before),
        setbacks=setbacks(row),
        exact_resume=row.exact_resume,
        exact_resume_reason=row.exact_resume_reason,
        engine=row.engine,
        error=row.error,
        version=version,
        created_at=timestamp(row.created_at),
        started_at=None if row.started_at is None else timestamp(row.started_at),
        finished_at=None if row.finished_at is None else timestamp(row.finished_at),
    )


def setbacks(row: Run) -> Setbacks:
    """What has gone wrong in a run."""
    return Setbacks(kills=row.kills, crashes=row.crashes, halvings=row.halvings)


def version_answer(home: Home, row: Version) -> VersionAnswer:
    """A version without its holdout rows."""
    imported, start = row.manifest.get("imported"), row.manifest.get("warm_start")
    return VersionAnswer(
        number=row.number,
        run=row.run_id,
        imported=None if imported is None else Imported.model_validate(imported),
        warm_start=None if start is None else start["version"],
        created_at=timestamp(row.created_at),
        verdict=row.verdict,
        verdict_reason=row.verdict_reason,
        active=row.active,
        activated_at=None if row.activated_at is None else timestamp(row.activated_at),
        activated_by=row.activated_by,
        files_gone=are_gone(home, row),
        metrics=Metrics.model_validate(row.metrics),
        base_hash=row.manifest["base_hash"],
        exact_resume=row.manifest.get("exact_resume"),
        exact_resume_reason=row.manifest.get("exact_resume_reason"),
        engine_switches=row.manifest.get("engine_switches", []),
        engine=row.manifest.get("engine"),
        seen_deleted=row.seen_deleted,
    )


def version_detail(
    session: Session, home: Home, row: Version, rows: list[dict[str, Any]], *, with_labels: bool
) -> VersionDetail:
    """A version with its holdout rows, each with its example's label where that may be shown."""
    ids = [one["example_id"] for one in rows if isinstance(one.get("example_id"), int)]
    labels = example_labels.labels_of(session, row.adapter_id, ids) if with_labels else {}
    return VersionDetail(
        **dict(version_answer(home, row)),
        holdout_rows=[one | {"label": labels.get(one.get("example_id", 0))} for one in rows],
    )
