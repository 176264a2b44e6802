"""Versions: finished adapters and their measurements; at most one per adapter is active."""

from collections.abc import Container, Sequence

from sqlalchemy import update
from sqlalchemy.orm import defer
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from storage.clock import now_ms
from storage.tables import Adapter, Version


def _select() -> SelectOfScalar[Version]:
    # Its ranges may be many, where several adapters get examples in turn; no answer shows them.
    return select(Version).options(defer(Version.seen))  # type: ignore[arg-type]


def add(session: Session, version: Version) -> Version:
    """Keep a new version under the adapter's next number; an active one replaces the active one.

    A number is never given twice, whatever is deleted.
    """
    adapter = session.get_one(Adapter, version.adapter_id)
    adapter.last_version += 1
    version.number = adapter.last_version
    session.add(adapter)
    if version.active:
        activate(session, version, by=None)
    session.add(version)
    session.flush()
    return version


def activate(session: Session, version: Version, *, by: str | None) -> None:
    """Make this the adapter's one active version, in place of the one that is.

    ``by`` names the client that decided so; None: it was promoted.
    """
    session.exec(
        update(Version)
        .where(col(Version.adapter_id) == version.adapter_id, col(Version.active))
        .values(active=False)
    )
    version.active, version.activated_at, version.activated_by = True, now_ms(), by
    session.add(version)


def deactivate(session: Session, version: Version) -> None:
    """Let the adapter have no active version, if it is this one."""
    version.active = False
    session.add(version)


def beyond(
    session: Session, adapter_id: int, keep: int, needed: Container[str]
) -> Sequence[Version]:
    """The adapter's versions but for the newest ``keep``, the active one and the ``needed``.

    ``needed`` are paths, relative to the home.
    """
    older = session.exec(
        _select()
        .where(Version.adapter_id == adapter_id)
        .order_by(col(Version.number).desc())
        .offset(keep)
    )
    return [one for one in older if not one.active and one.path not in needed]


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
    return {run_id: number for run_id, number in rows if run_id is not None}


def at_path(session: Session, path: str) -> Version | None:
    """The version whose folder lies there, relative to the home."""
    return session.exec(_select().where(Version.path == path)).one_or_none()


def paths(session: Session) -> set[str]:
    """The folders of all versions, relative to the home."""
    return set(session.exec(select(Version.path)))


def active(session: Session, adapter_id: int) -> Version | None:
    """The adapter's active version."""
    return session.exec(
        _select().where(Version.adapter_id == adapter_id, col(Version.active))
    ).one_or_none()


def trained_since(session: Session, since_ms: int) -> Sequence[Version]:
    """The versions of every client's that runs have made since then, the oldest first."""
    made = _select().where(col(Version.run_id).is_not(None), Version.created_at >= since_ms)
    return session.exec(made.order_by(col(Version.id))).all()
