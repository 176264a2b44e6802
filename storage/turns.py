"""What decides whose turn it is to be trained, read for all adapters at once.

One query for all of them, and a short one for each adapter whose new examples must be looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, bindparam, text
from sqlalchemy.orm import aliased
from sqlmodel import Session, and_, col, func, select

from storage.counting import ExampleCount
from storage.ledgers import NightUsage
from storage.tables import Adapter, Run

_run = aliased(Run)
_pending = aliased(ExampleCount)
_used = aliased(ExampleCount)

_LATEST_RUN = (
    select(func.max(Run.id))
    .where(Run.adapter_id == Adapter.id)
    .correlate(Adapter)
    .scalar_subquery()
)
_LAST_WORKED = (
    select(Run.worked_at)
    .where(Run.adapter_id == Adapter.id, col(Run.worked_at).is_not(None))
    .order_by(col(Run.id).desc())
    .limit(1)
    .correlate(Adapter)
    .scalar_subquery()
)


def _count_of(counts: Any, status: str) -> Any:
    return and_(counts.adapter_id == Adapter.id, counts.split == "train", counts.status == status)


_EVERYONE = (  # sqlmodel types selects of at most four columns
    select(  # type: ignore[call-overload]
        Adapter.id,
        Adapter.client_id,
        Adapter.base_model,
        Adapter.base_hash,
        Adapter.night,
        func.coalesce(_pending.examples, 0).label("pending"),
        func.coalesce(_used.examples, 0).label("used"),
        func.coalesce(_LAST_WORKED, 0).label("last_trained"),
        func.coalesce(NightUsage.seconds, 0.0).label("seconds_tonight"),
        col(_run.id).label("run_id"),
        _run.status,
        _run.origin,
        _run.in_window,
        _run.override,
        _run.not_before,
        col(_run.created_at).label("run_made"),
    )
    .outerjoin(_pending, _count_of(_pending, "pending"))
    .outerjoin(_used, _count_of(_used, "used"))
    .outerjoin(_run, _run.id == _LATEST_RUN)
    .outerjoin(
        NightUsage,
        and_(
            NightUsage.adapter_id == Adapter.id,
            NightUsage.night_id == bindparam("night_id"),
        ),
    )
    .order_by(Adapter.id)
)

# From the newest backwards until all that are pending were met: they lie at the end as a rule.
_NEW = text(
    "SELECT count(*), min(changed_at) FROM (SELECT changed_at FROM examples "
    "WHERE adapter_id = :adapter_id AND status = 'pending' AND split = 'train' "
    "ORDER BY id DESC LIMIT :pending) WHERE changed_at > :since"
)


@dataclass(frozen=True)
class New:
    """Training examples that wait for a training: how many, and when the first of them came."""

    count: int
    oldest: int | None


def everyone(session: Session, night_id: int | None) -> Sequence[Row[Any]]:
    """A row of every adapter by its id, with its latest run and what it used of that night."""
    rows: Sequence[Row[Any]] = session.execute(_EVERYONE, {"night_id": night_id}).all()
    return rows


def new_examples(session: Session, adapter_id: int, pending: int, since: int) -> New:
    """Of the adapter's ``pending`` training examples those that came or changed after ``since``."""
    count, oldest = session.execute(
        _NEW, {"adapter_id": adapter_id, "pending": pending, "since": since}
    ).one()
    return New(count, oldest)
