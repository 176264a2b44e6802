"""Retention: how long and how many of an adapter's examples are kept.

Of an example that expires only a shell is left, without text, label and hash, so that an
``external_id`` still finds its row; after `SHELL_DAYS` the shell goes too.
"""

from collections.abc import Sequence

from sqlalchemy import delete, func, literal_column, update
from sqlmodel import Session, col, select

from storage import erasures
from storage.examples import counts, in_parts
from storage.forgetting import Lost, note_lost
from storage.tables import Adapter, Example

SHELL_DAYS = 90
"""Days from an example's expiry to its shell's end."""

_DAY_MS = 24 * 60 * 60 * 1000
# Spelled out, not bound: else SQLite doesn't use the partial index.
_NOT_EXPIRED = col(Example.status) != literal_column("'expired'")


def expire(session: Session, adapter: Adapter, now_ms: int, *, most: int | None = None) -> int:
    """Make shells of what is older than ``keep_days`` or beyond the newest ``max_examples``.

    The versions that saw them and the erasures are brought up to date in the same transaction.

    Args:
        session: the writer's.
        adapter: its `keep_days` and `max_examples` (None: no bound) decide.
        now_ms: the time, in milliseconds since 1970 UTC.
        most: expire no more than this many, the oldest; None: all that are due.

    Returns:
        How many examples expired.
    """
    due = _due(session, adapter, now_ms, most)
    if not due:
        return 0
    for part in in_parts(due.ids):
        session.exec(
            update(Example)
            .where(col(Example.id).in_(part))
            .values(input=None, label=None, text_hash=None, status="expired", changed_at=now_ms)
        )
    note_lost(session, adapter.id, due)
    erasures.grow(session, "retention", adapter.client_id, len(due))
    return len(due)


def adapter_ids(session: Session) -> Sequence[int]:
    """The ids of all adapters: each may have something that expires, or shells."""
    return session.exec(select(col(Adapter.id)).order_by(col(Adapter.id))).all()


def old_shells(session: Session, adapter_id: int, now_ms: int, most: int) -> Sequence[int]:
    """The ids of up to ``most`` shells that are older than `SHELL_DAYS`. Any session will do."""
    if not counts(session, adapter_id).expired:
        return []
    return session.exec(
        select(col(Example.id))
        .where(
            Example.adapter_id == adapter_id,
            Example.status == "expired",
            col(Example.changed_at) < now_ms - SHELL_DAYS * _DAY_MS,
        )
        .limit(most)
    ).all()


def drop_shells(session: Session, adapter: Adapter, ids: Sequence[int]) -> None:
    """Delete these rows of the adapter as far as they are shells still."""
    for part in in_parts(ids):
        session.exec(
            delete(Example).where(col(Example.id).in_(part), col(Example.status) == "expired")
        )
    erasures.grow(session, "retention", adapter.client_id, 0)  # their external_ids are text too


def _due(session: Session, adapter: Adapter, now_ms: int, most: int | None) -> Lost:
    number = 0
    if adapter.max_examples is not None:
        kept = counts(session, adapter.id)
        number = kept.train + kept.holdout - adapter.max_examples
    if adapter.keep_days is not None:
        before = now_ms - adapter.keep_days * _DAY_MS
        number = max(number, _older(session, adapter.id, before))
    if most is not None:
        number = min(number, most)
    if number <= 0:
        return Lost()
    rows = session.exec(
        select(Example.id, Example.created_at)
        .where(Example.adapter_id == adapter.id, _NOT_EXPIRED)
        .order_by(col(Example.created_at), col(Example.id))
        .limit(number)
    )
    return Lost.of((one, created) for one, created in rows)


def _older(session: Session, adapter_id: int, before: int) -> int:
    return session.exec(
        select(func.count())
        .select_from(Example)
        .where(Example.adapter_id == adapter_id, _NOT_EXPIRED, col(Example.created_at) < before)
    ).one()
