"""Erasures: what was deleted and may still have traces on the disk, in the log or in folders."""

from collections.abc import Sequence

from sqlalchemy import delete, update
from sqlmodel import Session, col, select

from storage.clock import now_ms
from storage.ledgers import ErasedWhat, Erasure

KEPT_DAYS = 90
"""How long a finished erasure can be asked about."""

_DAY_MS = 24 * 60 * 60 * 1000


def add(
    session: Session,
    what: ErasedWhat,
    client_id: int,
    examples: int,
    paths: Sequence[str] = (),
) -> Erasure:
    """Note, in the transaction that deletes, what has still to go from the disk.

    ``paths`` are the files and folders that go with it, relative to the home.
    """
    erasure = Erasure(what=what, client_id=client_id, examples=examples, paths=list(paths))
    session.add(erasure)
    session.flush()
    return erasure


def grow(session: Session, what: ErasedWhat, client_id: int, examples: int) -> Erasure:
    """As `add`, counted into the client's pending erasure of that kind where there is one.

    For what happens by itself and often: texts that expire or are replaced.
    """
    pending = session.exec(
        select(Erasure)
        .where(
            Erasure.client_id == client_id,
            Erasure.what == what,
            col(Erasure.erased_at).is_(None),
        )
        .limit(1)
    ).one_or_none()
    if pending is None:
        return add(session, what, client_id, examples)
    pending.examples += examples
    session.add(pending)
    session.flush()
    return pending


def find(session: Session, erasure_id: int, client_id: int | None = None) -> Erasure | None:
    """The erasure with that id; with ``client_id`` only if it is that client's."""
    erasure = session.get(Erasure, erasure_id)
    if erasure is None or client_id not in (None, erasure.client_id):
        return None
    return erasure


def pending(session: Session) -> Sequence[Erasure]:
    """The erasures that aren't done, oldest first."""
    return session.exec(
        select(Erasure).where(col(Erasure.erased_at).is_(None)).order_by(col(Erasure.id))
    ).all()


def finish(session: Session, ids: Sequence[int]) -> None:
    """Nothing is left of these; what was finished `KEPT_DAYS` ago is no longer told."""
    now = now_ms()
    for one in ids:
        session.exec(update(Erasure).where(col(Erasure.id) == one).values(erased_at=now))
    session.exec(delete(Erasure).where(col(Erasure.erased_at) < now - KEPT_DAYS * _DAY_MS))
