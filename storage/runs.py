"""Runs: each one training of an adapter, from the queue to its end."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, func, update
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from storage.clock import now_ms
from storage.tables import UNFINISHED, Adapter, Run, RunStatus, Version


def enqueue(session: Session, adapter_id: int) -> Run:
    """A new queued run. The caller has made sure that the adapter has no unfinished one."""
    run = Run(adapter_id=adapter_id)
    session.add(run)
    session.flush()
    return run


def requeue(session: Session, run: Run) -> None:
    """Queue an unfinished run again; it goes on under its own id."""
    run.status, run.wanted, run.phase = "queued", None, None
    run.error, run.finished_at, run.not_before = None, None, None
    session.add(run)


def find(session: Session, client_id: int, run_id: int) -> Run | None:
    """The client's run with that id."""
    return session.exec(
        select(Run)
        .join(Adapter, col(Adapter.id) == Run.adapter_id)
        .where(Run.id == run_id, Adapter.client_id == client_id)
    ).one_or_none()


def by_id(session: Session, run_id: int) -> Run | None:
    """The run with that id, whoever owns it."""
    return session.get(Run, run_id)


def page(session: Session, adapter_id: int, *, before: int | None, limit: int) -> Sequence[Run]:
    """Up to ``limit`` runs of the adapter with ids below ``before``, newest first."""
    query = select(Run).where(Run.adapter_id == adapter_id)
    if before is not None:
        query = query.where(col(Run.id) < before)
    return session.exec(query.order_by(col(Run.id).desc()).limit(limit)).all()


def latest_with_engine(session: Session, client_id: int | None) -> Run | None:
    """The client's newest run that has an engine to tell of; None for the client: anybody's."""
    query = select(Run).where(col(Run.engine).is_not(None))
    if client_id is not None:
        adapter = col(Adapter.id) == Run.adapter_id
        query = query.join(Adapter, adapter).where(Adapter.client_id == client_id)
    return session.exec(query.order_by(col(Run.id).desc()).limit(1)).one_or_none()


def unfinished(session: Session, adapter_id: int) -> Run | None:
    """The adapter's one run that can still go on."""
    return session.exec(
        select(Run).where(Run.adapter_id == adapter_id, col(Run.status).in_(UNFINISHED))
    ).one_or_none()


def latest(session: Session, adapter_id: int) -> Run | None:
    """The adapter's newest run, whatever its state."""
    return session.exec(
        select(Run).where(Run.adapter_id == adapter_id).order_by(col(Run.id).desc()).limit(1)
    ).one_or_none()


def waiting(session: Session) -> Sequence[Run]:
    """The runs that are to be started or to go on, the oldest first."""
    return session.exec(
        select(Run).where(col(Run.status).in_(("queued", "interrupted"))).order_by(col(Run.id))
    ).all()


def running(session: Session) -> Run | None:
    """The one run that is being trained."""
    return session.exec(select(Run).where(Run.status == "running")).one_or_none()


def finished(session: Session, ids: Sequence[int]) -> set[int]:
    """Those of the ids whose run can't go on, or isn't there any more."""
    alive = session.exec(select(col(Run.id)).where(col(Run.status).in_(UNFINISHED))).all()
    return set(ids).difference(alive)


def beyond(session: Session, keep: int) -> Sequence[int]:
    """The ids of each adapter's runs but for the newest ``keep``, unfinished ones and those of
    versions."""
    newer = aliased(Run)
    place = (
        select(func.count())
        .where(newer.adapter_id == Run.adapter_id, newer.id > Run.id)
        .correlate(Run)
        .scalar_subquery()
    )
    return session.exec(
        select(col(Run.id)).where(*_may_go(), place >= keep).order_by(col(Run.id))
    ).all()


def forget(session: Session, run_id: int) -> None:
    """Delete the run, unless it is unfinished or has a version."""
    session.exec(delete(Run).where(col(Run.id) == run_id, *_may_go()))


def start(session: Session, run: Run) -> None:
    """Mark a waiting run as running."""
    run.status, run.wanted, run.error, run.finished_at = "running", None, None, None
    run.started_at = run.started_at or now_ms()
    run.worked_at, run.not_before = now_ms(), None
    session.add(run)


def progress(session: Session, run_id: int, values: dict[str, Any]) -> None:
    """Write what the worker reported into the run's columns of these names."""
    session.exec(update(Run).where(col(Run.id) == run_id).values(**values))


def end(session: Session, run: Run, status: RunStatus, error: str | None) -> None:
    """Take a run out of training, with the reason in words; what was wanted of it is settled.

    Only an interrupted run keeps its ``not_before``: only it goes on by itself.
    """
    if status != "interrupted":
        run.not_before = None
    run.status, run.wanted, run.error, run.phase = status, None, error, None
    run.finished_at = None if status in UNFINISHED else now_ms()
    session.add(run)


def _may_go() -> tuple[ColumnElement[bool], ...]:
    version = select(Version.id).where(Version.run_id == Run.id).exists()
    return col(Run.status).not_in(UNFINISHED), ~version
