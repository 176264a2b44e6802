"""History is kept by client, newest first, and bounded."""

import pytest
from sqlmodel import Session

from storage import clients, history
from storage.database import Database


def messages(session: Session, client_id: int | None, **filters: object) -> list[str]:
    options = {"before": None, "limit": 100} | filters
    return [entry.message for entry in history.page(session, client_id, **options)]  # type: ignore[arg-type]


def test_a_client_reads_its_own_newest_first(database: Database) -> None:
    with database.write() as session:
        one = clients.put(session, "one", b"\x01" * 32).id
        two = clients.put(session, "two", b"\x02" * 32).id
        history.add(session, "daemon-started", "started")
        for number in range(3):
            history.add(session, "run-queued", f"one {number}", one, "phone", number + 1)
        history.add(session, "run-ended", "two", two, "phone")
        last = history.add(session, "adapter-created", "one made mail", one, "mail")
    with database.read() as session:
        assert messages(session, one) == ["one made mail", "one 2", "one 1", "one 0"]
        assert messages(session, two) == ["two"]
        assert messages(session, one, with_daemon=True)[-1] == "started"
        assert messages(session, one, before=last.id, limit=2) == ["one 2", "one 1"]
        assert messages(session, one, adapter="mail") == ["one made mail"]
        assert messages(session, one, kinds=["run-queued"], adapter="phone", limit=1) == ["one 2"]
        assert messages(session, one, kinds=["run-ended"]) == []
        either = ["adapter-created", "run-ended", "daemon-started"]
        assert messages(session, one, kinds=either) == ["one made mail"]
        everyones = messages(session, None)[::-1]
        assert everyones == ["started", "one 0", "one 1", "one 2", "two", "one made mail"]


def test_a_noisy_client_pushes_out_only_its_own(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "KEPT", 3)
    with database.write() as session:
        one = clients.put(session, "one", b"\x01" * 32).id
        two = clients.put(session, "two", b"\x02" * 32).id
        history.add(session, "daemon-started", "started")
        history.add(session, "run-queued", "quiet", two)
        for number in range(10):
            history.add(session, "run-queued", f"noisy {number}", one)
    with database.read() as session:
        assert messages(session, one) == ["noisy 9", "noisy 8", "noisy 7"]
        assert messages(session, two, with_daemon=True) == ["quiet", "started"]


def test_a_flood_of_one_kind_pushes_out_only_its_own(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "KEPT", 8)
    monkeypatch.setattr(history, "KEPT_OF_A_KIND", 3)
    with database.write() as session:
        one = clients.put(session, "one", b"\x01" * 32).id
        two = clients.put(session, "two", b"\x02" * 32).id
        history.add(session, "run-failed", "why", one)
        history.add(session, "run-checkpoint", "of two", two)
        history.add(session, "gate-closed", "hot")
        for number in range(20):
            history.add(session, "run-checkpoint", f"step {number}", one)
            history.add(session, "gate-opened", f"cool {number}")
    with database.read() as session:
        assert messages(session, one) == ["step 19", "step 18", "step 17", "why"]
        assert messages(session, two) == ["of two"]
        assert messages(session, None, kinds=["gate-opened", "gate-closed"]) == [
            "cool 19",
            "cool 18",
            "cool 17",
            "hot",
        ]
    with database.write() as session:  # many kinds together are bounded too
        for number in range(20):
            history.add(session, f"kind-{number}", f"{number}", one)
    with database.read() as session:
        assert messages(session, one) == [str(number) for number in range(19, 11, -1)]


def test_long_and_odd_messages_are_kept_as_far_as_they_fit(database: Database) -> None:
    with database.write() as session:
        entry = history.add(session, "run-failed", "a\0b" + "c" * 2000)
    assert entry.message.startswith("a bccc")
    assert entry.message.endswith("…")
    assert len(entry.message) == history.MOST_MESSAGE
