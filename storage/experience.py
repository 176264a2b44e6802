"""What the trainings of a device were like: numbers, without anybody's names or words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func
from sqlmodel import Session, col, select

from storage.ledgers import HistoryEntry, Night
from storage.tables import Run, Version

MOST_VERSIONS = 50
MOST_NIGHTS = 60
_MOST_GATE_ENTRIES = 5000


@dataclass(frozen=True)
class Experience:
    """The last versions with their runs, the last nights, and how often what happened.

    ``gates_closed`` counts the first words of those entries, which are the gates' names.
    """

    versions: Sequence[tuple[Version, Run]]
    nights: Sequence[Night]
    runs: dict[str, int]
    happened: dict[str, int]
    gates_closed: dict[str, int]


def experience(session: Session) -> Experience:
    """Read it in one snapshot."""
    versions = session.exec(
        select(Version, Run)
        .join(Run, col(Run.id) == Version.run_id)
        .order_by(col(Version.id).desc())
        .limit(MOST_VERSIONS)
    ).all()
    nights = session.exec(select(Night).order_by(col(Night.id).desc()).limit(MOST_NIGHTS)).all()
    runs = session.exec(select(Run.status, func.count()).group_by(Run.status)).all()
    kinds = session.exec(select(HistoryEntry.kind, func.count()).group_by(HistoryEntry.kind)).all()
    closed = session.exec(
        select(HistoryEntry.message)
        .where(HistoryEntry.kind == "gate-closed")
        .order_by(col(HistoryEntry.id).desc())
        .limit(_MOST_GATE_ENTRIES)
    ).all()
    gates = Counter(message.partition(" ")[0] for message in closed)
    return Experience(versions, nights, dict(runs), dict(kinds), dict(gates))
