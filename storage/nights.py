"""Nights: the openings of windows, what each adapter used of them, and what the battery did."""

from collections.abc import Sequence

from sqlalchemy import update
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Session, col, delete, select

from storage.ledgers import Night, NightUsage
from storage.tables import Adapter

KEPT = 400
"""Nights kept with their usage: the newest."""


def enter(session: Session, key: str, now: int) -> Night:
    """The night of that key, open: a new one, or one that was left or closed before.

    Whatever becomes of the clock or of the daemon, what was used of it stays used.
    """
    night = find(session, key)
    if night is None:
        night = Night(key=key, opened_at=now)
        session.add(night)
        session.flush()
        _forget_old(session, night.id)
    night.closed_at = None
    session.add(night)
    return night


def leave(session: Session, night_id: int, now: int) -> None:
    """Close the night."""
    session.exec(update(Night).where(col(Night.id) == night_id).values(closed_at=now))


def find(session: Session, key: str) -> Night | None:
    """The night of that key, open or closed."""
    return session.exec(select(Night).where(Night.key == key)).one_or_none()


def open_ones(session: Session) -> Sequence[Night]:
    """The nights that nobody has closed: the present one, and those in which the daemon died."""
    return session.exec(
        select(Night).where(col(Night.closed_at).is_(None)).order_by(col(Night.id))
    ).all()


def charge(session: Session, night_id: int, adapter_id: int, seconds: float) -> None:
    """Add to the time for which the adapter was trained in the night; nothing if it is deleted."""
    if session.get(Adapter, adapter_id) is None:
        return
    added = insert(NightUsage).values(night_id=night_id, adapter_id=adapter_id, seconds=seconds)
    session.execute(
        added.on_conflict_do_update(
            index_elements=["night_id", "adapter_id"],
            set_={"seconds": NightUsage.seconds + added.excluded.seconds},
        )
    )


def usage(session: Session, night_id: int) -> dict[int, float]:
    """For how many seconds each adapter was trained in the night, by its id."""
    rows = session.exec(select(NightUsage).where(NightUsage.night_id == night_id))
    return {row.adapter_id: row.seconds for row in rows}


def _forget_old(session: Session, newest: int) -> None:
    old = newest - KEPT
    session.exec(delete(NightUsage).where(col(NightUsage.night_id) <= old))
    session.exec(delete(Night).where(col(Night.id) <= old))
