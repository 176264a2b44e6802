"""Versions: finished adapters and their measurements; at most one per adapter is active."""

from collections.abc import Sequence

from sqlalchemy import func, update
from sqlalchemy.orm import defer
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from storage.tables import Run, Version


def _select() -> SelectOfScalar[Version]:
    # Its ranges may be many, where several adapters get examples in turn; no answer shows them.
    return select(Version).options(defer(Version.seen))  # type: ignore[arg-type]


def add(session: Session, version: Version) -> Version:
    """Keep a new version under the adapter's next number; an active one replaces the active one."""
    highest = session.exec(
        select(func.max(Version.number)).where(Version.adapter_id == version.adapter_id)
    ).one()
    # Each completed run had a version: a deleted one's number isn't given again.
    completed = session.exec(
        select(func.count())
        .select_from(Run)
        .where(
            Run.adapter_id == version.adapter_id,
            Run.status == "completed",
            Run.id != version.run_id,
        )
    ).one()
    version.number = max(highest or 0, completed) + 1
    if version.active:
        session.exec(
            update(Version)
            .where(col(Version.adapter_id) == version.adapter_id, col(Version.active))
            .values(active=False)
        )
    session.add(version)
    session.flush()
    return version


def page(session: Session, adapter_id: int, *, before: int | None, limit: int) -> Sequence[Version]:
    """Up to ``limit`` of the adapter's versions with numbers below ``before``, newest first."""
    query = _select().where(Version.adapter_id == adapter_id)
    if before is not None:
        query = query.where(col(Version.number) < before)
    return session.exec(query.order_by(col(Version.number).desc()).limit(limit)).all()


def find(session: Session, adapter_id: int, number: int) -> Version | None:
    """The adapter's version with that number."""
    return session.exec(
        _select().where(Version.adapter_id == adapter_id, Version.number == number)
    ).one_or_none()


def of_run(session: Session, run_id: int) -> Version | None:
    """The version that the run produced."""
    return session.exec(_select().where(Version.run_id == run_id)).one_or_none()


def numbers_by_run(session: Session, adapter_id: int) -> dict[int, int]:
    """``{run id: version number}`` of the adapter."""
    rows = session.exec(
        select(Version.run_id, Version.number).where(Version.adapter_id == adapter_id)
    )
    return dict(rows.all())


def paths(session: Session) -> set[str]:
    """The folders of all versions, relative to the home."""
    return set(session.exec(select(Version.path)))


def active(session: Session, adapter_id: int) -> Version | None:
    """The adapter's active version."""
    return session.exec(
        _select().where(Version.adapter_id == adapter_id, col(Version.active))
    ).one_or_none()
