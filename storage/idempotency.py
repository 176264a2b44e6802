"""Idempotency records: what a request with an Idempotency-Key was answered, for a day."""

from sqlalchemy import delete, func
from sqlmodel import Session, col, select

from storage.clock import now_ms
from storage.ledgers import IdempotencyRecord
from storage.tables import Client

KEPT_MS = 24 * 3600 * 1000
"""How long a record is kept, in milliseconds."""

MOST_KEPT = 20_000
"""Records kept of one client, so that keys can't fill the disk."""


def find(session: Session, client_id: int, key: str) -> IdempotencyRecord | None:
    """The client's record under that key, unless it is older than a day."""
    return session.exec(
        select(IdempotencyRecord).where(
            IdempotencyRecord.client_id == client_id,
            IdempotencyRecord.key == key,
            IdempotencyRecord.created_at > now_ms() - KEPT_MS,
        )
    ).one_or_none()


def keep(session: Session, record: IdempotencyRecord) -> None:
    """Keep a record; those of all clients that are older than a day go.

    Of a client that has more than `MOST_KEPT` the oldest go, a tenth at a time.
    """
    session.exec(
        delete(IdempotencyRecord).where(col(IdempotencyRecord.created_at) <= now_ms() - KEPT_MS)
    )
    own = IdempotencyRecord.client_id == record.client_id
    if session.exec(select(func.count()).where(own)).one() >= MOST_KEPT:
        oldest = (
            select(IdempotencyRecord.id)
            .where(own)
            .order_by(col(IdempotencyRecord.id))
            .limit(MOST_KEPT // 10)
        )
        session.exec(delete(IdempotencyRecord).where(col(IdempotencyRecord.id).in_(oldest)))
    session.add(record)
    session.flush()


def hash_key(session: Session, client_id: int) -> bytes | None:
    """The 32 bytes that key the hashes of what the client sends; None if the client is gone."""
    return session.exec(select(Client.key).where(Client.id == client_id)).one_or_none()
