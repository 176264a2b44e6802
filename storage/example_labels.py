"""Which labels an adapter's examples have."""

from collections.abc import Sequence

from sqlalchemy import LargeBinary, func
from sqlalchemy import cast as as_type
from sqlmodel import Session, col, select

from storage.examples import in_parts
from storage.tables import Example


def labels_of(session: Session, adapter_id: int, ids: Sequence[int]) -> dict[int, str]:
    """The labels of those of the examples that are still there with their text."""
    found: dict[int, str] = {}
    for part in in_parts(ids):
        rows = session.exec(
            select(Example.id, Example.label).where(
                Example.adapter_id == adapter_id, col(Example.id).in_(part)
            )
        )
        found.update((row_id, label) for row_id, label in rows if label is not None)
    return found


def latest_labels(session: Session, adapter_id: int, *, limit: int) -> list[str]:
    """The labels of the adapter's last ``limit`` kept examples, the oldest first."""
    rows = session.exec(
        select(Example.label)
        .where(Example.adapter_id == adapter_id, Example.status != "expired")
        .order_by(col(Example.id).desc())
        .limit(limit)
    ).all()
    return [label for label in reversed(rows) if label is not None]


def with_other_labels(
    session: Session, adapter_id: int, labels: Sequence[str], *, limit: int
) -> tuple[int, list[tuple[str, int]]]:
    """How many kept examples have none of ``labels``, and their most frequent labels.

    Of those, up to ``limit``, each with the number of examples that have it.
    """
    others = (
        Example.adapter_id == adapter_id,
        Example.status != "expired",
        col(Example.label).not_in(labels),
    )
    total = session.exec(select(func.count()).select_from(Example).where(*others)).one()
    if total == 0:
        return 0, []
    number = func.count()
    rows = session.exec(
        select(Example.label, number)
        .where(*others)
        .group_by(col(Example.label))
        .order_by(number.desc(), col(Example.label))
        .limit(limit)
    )
    return total, [(label, count) for label, count in rows if label is not None]


def longest_labels(
    session: Session, adapter_id: int, *, at_least: int, limit: int
) -> Sequence[str]:
    """Up to ``limit`` different labels of at least so many bytes, the longest first."""
    size = func.length(as_type(col(Example.label), LargeBinary))
    rows = session.exec(
        select(Example.label)
        .where(Example.adapter_id == adapter_id, size >= at_least)
        .distinct()
        .order_by(size.desc())
        .limit(limit)
    )
    return [label for label in rows if label is not None]
