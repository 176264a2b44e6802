"""Quotas: what counts, until when, and that a refusal counts nothing."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlmodel import Session, select

from storage import clients, examples, usage
from storage.clock import now_ms
from storage.database import Database
from storage.examples import NewExample
from storage.ledgers import DailyUsage
from storage.tables import Adapter, Client
from storage.usage import DAY_MS, QuotaError
from tests.storage.conftest import new_adapter

NOON = 20_000 * DAY_MS + DAY_MS // 2


def limited(session: Session, **quotas: int | None) -> Client:
    client = clients.every(session)[0]
    for name, limit in quotas.items():
        setattr(client, name, limit)
    session.add(client)
    session.flush()
    return client


def fill(session: Session, adapter: Adapter, *texts: str) -> None:
    examples.add(session, adapter, [NewExample(text, "now", "train", None) for text in texts])


def test_the_days_examples_are_counted_until_midnight_utc(
    database: Database, adapter: Adapter
) -> None:
    with database.write() as session:
        client = limited(session, examples_per_day=10)
        usage.charge(session, client, 6, 1, NOON)
        usage.charge(session, client, 4, 1, NOON + 1)
        with pytest.raises(QuotaError) as refused:
            usage.charge(session, client, 1, 1, NOON + 1)
        assert (refused.value.quota, refused.value.limit, refused.value.found) == (
            "examples_per_day",
            10,
            11,
        )
        assert refused.value.retry_after_seconds == DAY_MS // 2000  # rounded up
        assert usage.of_client(session, client.id, NOON).examples_today == 10
        last = NOON + DAY_MS // 2 - 1
        with pytest.raises(QuotaError) as refused:
            usage.charge(session, client, 1, 1, last)
        assert refused.value.retry_after_seconds == 1
        usage.charge(session, client, 10, 1, last + 1)


def test_a_refusal_counts_nothing(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        client = limited(session, examples_per_day=10, most_bytes=100)
        with pytest.raises(QuotaError, match="most_bytes allows 100"):
            usage.charge(session, client, 10, 101, NOON)
        assert usage.of_client(session, client.id, NOON) == usage.Usage(0, 0, 0)
        usage.charge(session, client, 10, 100, NOON)


def test_bytes_and_pending_are_summed_over_all_adapters_of_this_client_only(
    database: Database, adapter: Adapter
) -> None:
    second = new_adapter(database, "second")
    with database.write() as session:
        other = clients.put(session, "other", b"\x02" * 32)
        foreign = Adapter(**{**adapter.model_dump(exclude={"id"}), "client_id": other.id})
        session.add(foreign)
        session.flush()
        fill(session, adapter, "é", "two")
        fill(session, second, "three")
        fill(session, foreign, "not ours, and long")
        client = limited(session, most_bytes=30, most_pending=4)
        assert usage.of_client(session, client.id, NOON) == usage.Usage(0, 2 + 3 + 5 + 9, 3)
        usage.charge(session, client, 1, 11, NOON)
        with pytest.raises(QuotaError) as refused:
            usage.charge(session, client, 1, 12, NOON)
        assert (refused.value.quota, refused.value.found) == ("most_bytes", 31)
        with pytest.raises(QuotaError) as refused:
            usage.charge(session, client, 2, 0, NOON)
        assert (refused.value.quota, refused.value.found) == ("most_pending", 5)
        assert refused.value.retry_after_seconds == 3600


def test_used_examples_are_not_pending(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        fill(session, adapter, "one", "two")
        examples.mark_used(
            session, examples.ids(session, adapter.id, "train"), unchanged_since=now_ms()
        )
        client = limited(session, most_pending=1)
        assert usage.of_client(session, client.id, NOON).pending == 0
        usage.charge(session, client, 1, 3, NOON)


def test_held_out_examples_are_not_pending(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        examples.add(session, adapter, [NewExample("one", "now", "holdout")])
        assert usage.of_client(session, adapter.client_id, NOON).pending == 0


def test_what_does_not_grow_is_not_refused(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        fill(session, adapter, "one", "two")
        client = limited(session, most_bytes=1, most_pending=1)
        usage.charge(session, client, 1, -2, NOON, new_pending=0)
        with pytest.raises(QuotaError):
            usage.charge(session, client, 1, -2, NOON, new_pending=1)


def test_without_a_quota_there_is_no_limit(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        client = limited(session)
        usage.charge(session, client, 10**9, 10**12, NOON)
        assert usage.of_client(session, client.id, NOON).examples_today == 10**9


def test_old_days_are_purged(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        client = limited(session)
        for day in range(5):
            usage.charge(session, client, 1, 1, NOON + day * DAY_MS)
        assert len(session.exec(select(DailyUsage)).all()) == 2


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    limit=st.integers(1, 20),
    steps=st.lists(st.tuples(st.integers(1, 8), st.integers(0, DAY_MS)), max_size=30),
)
def test_no_day_ever_exceeds_its_limit(
    database: Database, limit: int, steps: list[tuple[int, int]]
) -> None:
    new_adapter_once(database)
    accepted: dict[int, int] = {}
    now = NOON
    with database.write() as session:
        session.exec(DailyUsage.__table__.delete())  # type: ignore[attr-defined]
        client = limited(session, examples_per_day=limit)
        for count, later in steps:
            now += later
            day = now // DAY_MS
            if accepted.get(day, 0) + count <= limit:
                usage.charge(session, client, count, count, now)
                accepted[day] = accepted.get(day, 0) + count
                continue
            with pytest.raises(QuotaError) as refused:
                usage.charge(session, client, count, count, now)
            assert (now + refused.value.retry_after_seconds * 1000) // DAY_MS == day + 1


def new_adapter_once(database: Database) -> None:
    with database.read() as session:
        if clients.every(session):
            return
    new_adapter(database)
