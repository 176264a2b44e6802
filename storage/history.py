"""History: what happened, in words, and never with an example's text."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, delete, or_
from sqlmodel import Session, col, select

from storage.ledgers import HistoryEntry

KEPT = 10_000
"""Entries kept of each client, and of the daemon as a whole: the newest."""

KEPT_OF_A_KIND = 1_000
"""Of these, entries of one kind: a long run's checkpoints, or a gate that flaps, don't push out why
an earlier run failed."""

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
    """Note that something happened; the oldest beyond `KEPT` and `KEPT_OF_A_KIND` go.

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
    of_the_client = col(HistoryEntry.client_id).is_not_distinct_from(client_id)
    _keep_newest(session, KEPT_OF_A_KIND, of_the_client, col(HistoryEntry.kind) == kind)
    _keep_newest(session, KEPT, of_the_client)
    return entry


def page(
    session: Session,
    client_id: int | None,
    *,
    before: int | None,
    limit: int,
    adapter: str | None = None,
    kinds: Collection[str] = (),
    with_daemon: bool = False,
) -> Sequence[HistoryEntry]:
    """Up to ``limit`` entries of the client with ids below ``before``, newest first.

    Args:
        session: any.
        client_id: whose entries; None: everybody's, and those that concern the whole daemon.
        before: None for the newest.
        limit: how many at most.
        adapter: only those about the adapter of this name.
        kinds: only those of one of these kinds; none: of any.
        with_daemon: also those that concern the whole daemon.
    """
    query = select(HistoryEntry)
    if client_id is not None:
        own = col(HistoryEntry.client_id) == client_id
        daemons = col(HistoryEntry.client_id).is_(None)
        query = query.where(or_(own, daemons) if with_daemon else own)
    if before is not None:
        query = query.where(col(HistoryEntry.id) < before)
    if adapter is not None:
        query = query.where(HistoryEntry.adapter == adapter)
    if kinds:
        query = query.where(col(HistoryEntry.kind).in_(kinds))
    return session.exec(query.order_by(col(HistoryEntry.id).desc()).limit(limit)).all()


def _keep_newest(session: Session, count: int, *of: ColumnElement[bool]) -> None:
    """Delete the entries of which ``of`` holds but for the newest ``count``."""
    oldest = (
        select(HistoryEntry.id)
        .where(*of)
        .order_by(col(HistoryEntry.id).desc())
        .offset(count)
        .limit(1)
        .scalar_subquery()
    )
    session.exec(delete(HistoryEntry).where(*of, col(HistoryEntry.id) <= oldest))


def _short(message: str) -> str:
    plain = message.replace("\0", " ")
    return plain if len(plain) <= MOST_MESSAGE else plain[: MOST_MESSAGE - 1] + "…"
