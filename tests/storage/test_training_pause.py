"""The user's pause of all training, and what is noted of it."""

from sqlmodel import Session

from storage import history, training_pause
from storage.clock import now_ms
from storage.database import Database

HOUR = 3_600_000


def noted(session: Session) -> list[str]:
    entries = history.page(session, None, before=None, limit=100)
    return [entry.kind for entry in entries][::-1]


def test_holds_until_it_is_ended(database: Database) -> None:
    with database.write() as session:
        assert training_pause.active(session, now_ms()) is None
        training_pause.begin(session, None)
    with database.write() as session:
        for at in (0, now_ms(), now_ms() + 100_000 * HOUR):
            assert training_pause.active(session, at) is not None
        assert training_pause.end(session)
        assert training_pause.active(session, now_ms()) is None
        assert not training_pause.end(session)
        assert noted(session) == ["training-paused", "training-resumed"]


def test_ends_by_itself_and_that_is_noted_once(database: Database) -> None:
    with database.write() as session:
        end = now_ms() + HOUR
        training_pause.begin(session, end)
        assert training_pause.active(session, end - 1) is not None
        assert not training_pause.lapse(session, end - 1)
        assert training_pause.active(session, end) is None, "whether or not anybody has noted it"
        assert training_pause.lapse(session, end)
        assert not training_pause.lapse(session, end)
        assert noted(session) == ["training-paused", "training-resumed"]


def test_asked_for_again_it_is_the_same_and_may_end_at_another_time(database: Database) -> None:
    with database.write() as session:
        since = training_pause.begin(session, None).since
        assert training_pause.begin(session, None).since == since
        assert noted(session) == ["training-paused"]
        later = now_ms() + HOUR
        changed = training_pause.begin(session, later)
        assert (changed.since, changed.until) == (since, later)
        assert noted(session) == ["training-paused"] * 2


def test_one_after_another_that_is_over_is_another(database: Database) -> None:
    with database.write() as session:
        first = training_pause.begin(session, 1).since
        pause = training_pause.begin(session, None)
        assert pause.since >= first
        assert pause.until is None
        assert noted(session) == ["training-paused", "training-resumed", "training-paused"]
        training_pause.end(session)
        training_pause.begin(session, 1)
        assert not training_pause.end(session), "it was over already"
        assert training_pause.active(session, 0) is None
        assert noted(session)[3:] == ["training-resumed", "training-paused", "training-resumed"]
