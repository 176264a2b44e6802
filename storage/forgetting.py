"""What else has to change when texts are lost: counts of versions, records, the run in flight.

A text is lost when its example is deleted, expires, or is corrected. The same holds for all three:
whoever has seen it is told apart from whoever has not, and nothing stays by which a guess of the
text could be tested.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import update
from sqlmodel import Session, col, select

from storage.id_ranges import count_in
from storage.ledgers import IdempotencyRecord
from storage.tables import UNFINISHED, Run, Version

_IDS_A_TIME = 10_000


@dataclass(frozen=True)
class Lost:
    """An example whose text is lost, and when it came (ms since 1970 UTC)."""

    id: int
    created_at: int


@dataclass(frozen=True)
class Witnesses:
    """Who had the lost texts: the numbers of versions that saw any, and the run in flight."""

    versions: list[int]
    run_id: int | None


def note_lost(session: Session, adapter_id: int, lost: Sequence[Lost]) -> Witnesses:
    """Count lost examples into the versions that saw them, and find who else had them.

    A version that doesn't know what it saw is taken to have seen every example that is older than
    its run.
    """
    if not lost:
        return Witnesses([], None)
    numbers = []
    rows = session.exec(
        select(Version.id, Version.number, Version.seen, Run.created_at)
        .join(Run, col(Run.id) == Version.run_id)
        .where(Version.adapter_id == adapter_id)
        .order_by(col(Version.number))
    ).all()
    for version_id, number, seen, began in rows:
        count = _seen_of(seen, began, lost)
        if count:
            numbers.append(number)
            session.exec(
                update(Version)
                .where(col(Version.id) == version_id)
                .values(seen_deleted=Version.seen_deleted + count)
            )
    forget_digests(session, adapter_id)
    return Witnesses(numbers, _run_in_flight(session, adapter_id, lost))


def forget_digests(session: Session, adapter_id: int) -> None:
    """Drop the hashes of what was sent to the adapter: a replay then goes by its key alone."""
    session.exec(
        update(IdempotencyRecord)
        .where(
            col(IdempotencyRecord.adapter_id) == adapter_id,
            col(IdempotencyRecord.digest).is_not(None),
        )
        .values(digest=None)
    )


def _seen_of(seen: Sequence[Sequence[int]] | None, began: int, lost: Sequence[Lost]) -> int:
    if seen is None:
        return sum(one.created_at <= began for one in lost)
    return sum(count_in(seen, [one.id for one in part]) for part in _parts(lost))


def _run_in_flight(session: Session, adapter_id: int, lost: Sequence[Lost]) -> int | None:
    oldest = min(one.created_at for one in lost)
    return session.exec(
        select(Run.id).where(
            Run.adapter_id == adapter_id,
            col(Run.status).in_(UNFINISHED),
            col(Run.created_at) >= oldest,
        )
    ).one_or_none()


def _parts(lost: Sequence[Lost]) -> Iterator[Sequence[Lost]]:
    for start in range(0, len(lost), _IDS_A_TIME):
        yield lost[start : start + _IDS_A_TIME]
