"""History: what happened, in words, and never with an example's text."""

from collections.abc import Sequence

from sqlalchemy import delete, or_
from sqlmodel import Session, col, select

from storage.ledgers import HistoryEntry

KEPT = 10_000
"""Entries kept of each client, and of the daemon as a whole: the newest."""

MOST_MESSAGE = 1000
"""Characters of a message; longer ones are cut."""


def add(
    session: Session,
    kind: str,
    message: str,
    client_id: int | None = None,
    adapter: str | None = None,
    run_id: int | None = None,
) -> HistoryEntry:
    """Note that something happened; the oldest entries beyond `KEPT` go.

    Args:
        session: the writer's; the entry is kept if its transaction is.
        kind: what happened, as ``noun-verb``: ``run-queued``, ``client-paired``.
        message: a sentence without any example's text.
        client_id: whose it is; None for what concerns the whole daemon, which only an admin sees.
        adapter: the name of the adapter it is about.
        run_id: the run it is about.
    """
    entry = HistoryEntry(
        kind=kind,
        message=_short(message),
        client_id=client_id,
        adapter=adapter,
        run_id=run_id,
    )
    session.add(entry)
    session.flush()
    oldest = (
        select(HistoryEntry.id)
        .where(col(HistoryEntry.client_id).is_not_distinct_from(client_id))
        .order_by(col(HistoryEntry.id).desc())
        .offset(KEPT)
        .limit(1)
        .scalar_subquery()
    )
    session.exec(
        delete(HistoryEntry).where(
            col(HistoryEntry.client_id).is_not_distinct_from(client_id),
            col(HistoryEntry.id) <= oldest,
        )
    )
    return entry


def page(
    session: Session,
    client_id: int,
    *,
    before: int | None,
    limit: int,
    adapter: str | None = None,
    kind: str | None = None,
    with_daemon: bool = False,
) -> Sequence[HistoryEntry]:
    """Up to ``limit`` entries of the client with ids below ``before``, newest first.

    Args:
        session: any.
        client_id: whose entries.
        before: None for the newest.
        limit: how many at most.
        adapter: only those about the adapter of this name.
        kind: only those of this kind.
        with_daemon: also those that concern the whole daemon.
    """
    own = col(HistoryEntry.client_id) == client_id
    query = select(HistoryEntry).where(
        or_(own, col(HistoryEntry.client_id).is_(None)) if with_daemon else own
    )
    if before is not None:
        query = query.where(col(HistoryEntry.id) < before)
    if adapter is not None:
        query = query.where(HistoryEntry.adapter == adapter)
    if kind is not None:
        query = query.where(HistoryEntry.kind == kind)
    return session.exec(query.order_by(col(HistoryEntry.id).desc()).limit(limit)).all()


def _short(message: str) -> str:
    plain = message.replace("\0", " ")
    return plain if len(plain) <= MOST_MESSAGE else plain[: MOST_MESSAGE - 1] + "…"
