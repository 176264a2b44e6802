"""What else has to change when texts are lost: counts of versions, records, the run in flight.

A text is lost when its example is deleted, expires, or is corrected. Whoever has seen it can then
be told, and nothing stays by which a guess of it could be tested.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import update
from sqlmodel import Session, col, select

from storage.id_ranges import count_in
from storage.ledgers import IdempotencyRecord
from storage.tables import UNFINISHED, Run, Version

_IDS_A_TIME = 10_000


@dataclass(frozen=True)
class Lost:
    """Examples whose texts are lost: their ids, and when each came (ms since 1970 UTC)."""

    ids: "array[int]" = field(default_factory=lambda: array("q"))
    created: "array[int]" = field(default_factory=lambda: array("q"))

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int]]) -> "Lost":
        """Those of the rows (id, created_at): 16 bytes each, for there may be a million."""
        lost = cls()
        for one, created in rows:
            lost.ids.append(one)
            lost.created.append(created)
        return lost

    def __len__(self) -> int:
        """How many they are."""
        return len(self.ids)


@dataclass(frozen=True)
class Witnesses:
    """Who had the lost texts: the numbers of versions that saw any, and the run in flight."""

    versions: list[int] = field(default_factory=list)
    run_id: int | None = None


def note_lost(session: Session, adapter_id: int, lost: Lost) -> Witnesses:
    """Count deleted or expired examples into the versions that saw them, and say who had them.

    A version that doesn't know what it saw is taken to have seen every example that is older than
    its run. An example that was a shell already is none of ``lost``.
    """
    if not lost:
        return Witnesses()
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


def _seen_of(seen: Sequence[Sequence[int]] | None, began: int, lost: Lost) -> int:
    if seen is None:
        return sum(created <= began for created in lost.created)
    return sum(count_in(seen, part) for part in _parts(lost.ids))


def _run_in_flight(session: Session, adapter_id: int, lost: Lost) -> int | None:
    return session.exec(
        select(Run.id).where(
            Run.adapter_id == adapter_id,
            col(Run.status).in_(UNFINISHED),
            col(Run.created_at) >= min(lost.created),
        )
    ).one_or_none()


def _parts(ids: "array[int]") -> Iterator["array[int]"]:
    for start in range(0, len(ids), _IDS_A_TIME):
        yield ids[start : start + _IDS_A_TIME]
