"""What a client has used of its quotas, and charging it for what it sends."""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import bindparam
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Session, col, delete, func, select

from storage.counting import ExampleCount
from storage.ledgers import DailyUsage
from storage.tables import Adapter, Client

Quota = Literal["examples_per_day", "most_bytes", "most_pending"]

DAY_MS = 86_400_000
_DAYS_KEPT = 2  # today, and yesterday in case the wall clock is set back
_RETRY_SECONDS = 3600

_REMEDIES: dict[Quota, str] = {
    "examples_per_day": "send fewer, or go on tomorrow (UTC)",
    "most_bytes": "delete examples, or keep them for a shorter time",
    "most_pending": "let the adapters train, or delete examples",
}
_MEANINGS: dict[Quota, str] = {
    "examples_per_day": "examples a day",
    "most_bytes": "bytes of text",
    "most_pending": "examples that no training has used yet",
}


class QuotaError(Exception):
    """A quota of the client would be passed; nothing is to be kept of the request.

    ``quota`` is its name, ``limit`` what it allows, ``found`` what would have been reached, and
    ``retry_after_seconds`` when it may be worth trying again.
    """

    def __init__(self, quota: Quota, limit: int, found: int, retry_after_seconds: int) -> None:
        """Say which quota, what it allows, what was asked for, and what to do."""
        super().__init__(
            f"the quota {quota} allows {limit} {_MEANINGS[quota]}, and with this request they "
            f"would be {found}; {_REMEDIES[quota]}"
        )
        self.quota = quota
        self.limit = limit
        self.found = found
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True)
class Usage:
    """How many examples a client has sent today (UTC), and what is kept of all it has sent.

    ``pending`` counts training examples only: a held-out one is never used up by a training.
    """

    examples_today: int
    bytes: int
    pending: int


# Built once: an expression takes longer to put together than to run, and every POST runs these.
_TODAY = select(DailyUsage.examples).where(
    DailyUsage.client_id == bindparam("client"), DailyUsage.day == bindparam("day")
)
_KEPT = select(
    func.coalesce(func.sum(ExampleCount.bytes), 0),
    func.coalesce(
        func.sum(ExampleCount.examples).filter(
            col(ExampleCount.status) == "pending", col(ExampleCount.split) == "train"
        ),
        0,
    ),
).where(
    col(ExampleCount.adapter_id).in_(
        select(Adapter.id).where(Adapter.client_id == bindparam("client"))
    )
)
_COUNT = insert(DailyUsage).on_conflict_do_update(
    index_elements=["client_id", "day"],
    set_={"examples": DailyUsage.examples + insert(DailyUsage).excluded.examples},
)
_FORGET = delete(DailyUsage).where(
    col(DailyUsage.client_id) == bindparam("client"), col(DailyUsage.day) <= bindparam("last")
)


def of_client(session: Session, client_id: int, now_ms: int) -> Usage:
    """What the client has used of its quotas."""
    this_day = {"client": client_id, "day": now_ms // DAY_MS}
    today = session.exec(_TODAY, params=this_day).one_or_none()
    size, pending = session.exec(_KEPT, params={"client": client_id}).one()
    return Usage(today or 0, size, pending)


def charge(
    session: Session,
    client: Client,
    examples: int,
    new_bytes: int,
    now_ms: int,
    *,
    new_pending: int | None = None,
) -> None:
    """Count ``examples`` as sent today, unless a quota of the client forbids the request.

    Call it in the writer's transaction *before* the examples are added. ``new_bytes`` is by how
    many bytes of UTF-8 (inputs and labels) they will grow what is kept, and ``new_pending`` by how
    many examples what waits for training (by default all of them, as if none were held out); both
    may be less for corrections. What doesn't grow isn't refused, however low its quota
    has been set since.

    Raises:
        QuotaError: nothing was counted, and nothing may be added.
    """
    usage = of_client(session, client.id, now_ms)
    to_midnight = -(-(DAY_MS - now_ms % DAY_MS) // 1000)
    growth: tuple[tuple[Quota, int | None, int, int, int], ...] = (
        ("examples_per_day", client.examples_per_day, usage.examples_today, examples, to_midnight),
        ("most_bytes", client.most_bytes, usage.bytes, new_bytes, _RETRY_SECONDS),
        (
            "most_pending",
            client.most_pending,
            usage.pending,
            examples if new_pending is None else new_pending,
            _RETRY_SECONDS,
        ),
    )
    for quota, limit, used, more, retry in growth:
        if limit is not None and more > 0 and used + more > limit:
            raise QuotaError(quota, limit, used + more, retry)
    _count(session, client.id, now_ms // DAY_MS, examples)


def _count(session: Session, client_id: int, day: int, examples: int) -> None:
    session.execute(_COUNT, {"client_id": client_id, "day": day, "examples": examples})
    session.execute(_FORGET, {"client": client_id, "last": day - _DAYS_KEPT})
