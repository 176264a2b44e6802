"""Numbers over everything that is kept, for those who watch the daemon from outside."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func
from sqlmodel import Session, col, select

from storage import runs
from storage.counting import ExampleCount
from storage.tables import Run, Version


@dataclass(frozen=True)
class Totals:
    """All of it in one snapshot: counts of examples by adapter, runs by state, verdicts."""

    examples: Sequence[ExampleCount]
    runs: dict[str, int]
    verdicts: dict[str, int]
    running: Run | None


def totals(session: Session) -> Totals:
    """Count."""
    counts = session.exec(
        select(ExampleCount).order_by(
            col(ExampleCount.adapter_id), col(ExampleCount.split), col(ExampleCount.status)
        )
    ).all()
    states = session.exec(select(Run.status, func.count()).group_by(Run.status)).all()
    verdicts = session.exec(select(Version.verdict, func.count()).group_by(Version.verdict)).all()
    return Totals(counts, dict(states), dict(verdicts), runs.running(session))
