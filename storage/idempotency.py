"""Idempotency records: what a request with an Idempotency-Key was answered, for a day."""

from sqlalchemy import delete, update
from sqlmodel import Session, col, select

from storage.clock import now_ms
from storage.ledgers import IdempotencyRecord
from storage.tables import Client

KEPT_MS = 24 * 3600 * 1000
"""How long a record is kept, in milliseconds."""


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
    """Keep a record; those of all clients that are older than a day go."""
    session.exec(
        delete(IdempotencyRecord).where(col(IdempotencyRecord.created_at) <= now_ms() - KEPT_MS)
    )
    session.add(record)
    session.flush()


def hash_key(session: Session, client_id: int) -> bytes | None:
    """The 32 bytes that key the hashes of what the client sends; None if the client is gone."""
    return session.exec(select(Client.key).where(Client.id == client_id)).one_or_none()


def drop_digests(session: Session, adapter_id: int) -> None:
    """Forget what the adapter's recorded requests carried; their answers stay."""
    session.exec(
        update(IdempotencyRecord)
        .where(
            col(IdempotencyRecord.adapter_id) == adapter_id,
            col(IdempotencyRecord.digest).is_not(None),
        )
        .values(digest=None)
    )
