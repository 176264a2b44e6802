"""Idempotency records: found for a day, and never without bound."""

import pytest

from storage import idempotency
from storage.clock import now_ms
from storage.database import Database
from storage.ledgers import IdempotencyRecord
from storage.tables import Adapter, Client


def keep(database: Database, client_id: int, key: str, age_ms: int = 0) -> None:
    record = IdempotencyRecord(
        client_id=client_id,
        key=key,
        digest=b"\x01" * 32,
        status=201,
        answer={"id": 1},
        created_at=now_ms() - age_ms,
    )
    with database.write() as session:
        idempotency.keep(session, record)


def is_found(database: Database, client_id: int, key: str) -> bool:
    with database.read() as session:
        return idempotency.find(session, client_id, key) is not None


def test_a_day_and_no_longer(database: Database, adapter: Adapter) -> None:
    keep(database, 1, "young", idempotency.KEPT_MS - 60_000)
    keep(database, 1, "old", idempotency.KEPT_MS)
    assert is_found(database, 1, "young")
    assert not is_found(database, 1, "old")
    keep(database, 1, "old")  # its name is free again
    assert is_found(database, 1, "old")


def test_keys_are_a_client_s_own(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        session.add(Client(name="app", token_hash=b"\x02" * 32))
    keep(database, 1, "k")
    assert not is_found(database, 2, "k")
    keep(database, 2, "k")
    assert is_found(database, 2, "k")


def test_the_oldest_of_too_many_go(
    database: Database, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "MOST_KEPT", 20)
    with database.write() as session:
        session.add(Client(name="app", token_hash=b"\x02" * 32))
    keep(database, 2, "theirs")
    for number in range(21):
        keep(database, 1, str(number))
    assert [is_found(database, 1, str(number)) for number in range(21)] == [False] * 2 + [True] * 19
    assert is_found(database, 2, "theirs")
