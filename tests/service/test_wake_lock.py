"""The wake lock by itself: when the commands are called, and what is written down meanwhile."""

import pytest

from service.phone.command import Command
from service.phone.left_behind import LeftBehind
from service.phone.wake_lock import KEEP_SECONDS, WakeLock
from tests.service.phone_commands import LOCK, UNLOCK, Clock, PhoneCommands

SHORT = 0.5
"""For what hangs anyhow."""


class Rig:
    """The lock of one daemon after the other on the same phone."""

    def __init__(self, commands: PhoneCommands) -> None:
        self.commands = commands
        self.path = commands.prefix / "phone.json"
        self.clock = Clock()
        self.lock = self.daemon()

    def daemon(
        self, boot: str | None = "this", *, enabled: bool = True, seconds: float = 5
    ) -> WakeLock:
        find, clock = self.commands.find, self.clock
        self.lock = WakeLock(
            enabled=enabled,
            left=LeftBehind(self.path, boot),
            take=Command(LOCK, clock, find, seconds),
            give_back=Command(UNLOCK, clock, find, seconds),
        )
        return self.lock


@pytest.fixture
def rig(commands: PhoneCommands) -> Rig:
    return Rig(commands)


def test_is_taken_once_and_given_back_once(rig: Rig) -> None:
    lock, commands = rig.lock, rig.commands
    assert lock.look(0) is None
    assert lock.look(10 * KEEP_SECONDS) is None
    assert commands.locks == [], "what lorad didn't take isn't given back"
    assert lock.standing.state == "not-held"
    for _ in range(3):
        assert lock.look(None) is None
    assert lock.standing.state == "held"
    assert "one that you took by hand ends too" in lock.standing.why
    assert lock.look(0) == KEEP_SECONDS
    assert lock.look(KEEP_SECONDS - 1) == 1
    lock.look(None)
    assert commands.locks == [LOCK], "a pause of some seconds is none"
    assert rig.path.exists()
    assert lock.look(KEEP_SECONDS) is None
    assert lock.look(KEEP_SECONDS + 1) is None
    assert (lock.standing.state, lock.standing.why) == ("not-held", "nothing trains")
    assert commands.locks == [LOCK, UNLOCK]
    assert not rig.path.exists()
    lock.look(None)
    assert commands.locks == [LOCK, UNLOCK, LOCK]


def test_what_a_killed_daemon_held_is_given_back_once(rig: Rig) -> None:
    rig.lock.look(None)
    again = rig.daemon()
    assert again.standing.state == "held"
    assert again.look(1) == KEEP_SECONDS - 1
    assert rig.commands.locks == [LOCK]
    again.look(KEEP_SECONDS)
    again.look(KEEP_SECONDS + 1)
    rig.daemon().look(KEEP_SECONDS)
    assert rig.commands.locks == [LOCK, UNLOCK]


def test_a_daemon_that_trains_at_once_takes_it_anew(rig: Rig) -> None:
    """Termux itself may have been killed with the one before, and its lock with it."""
    rig.lock.look(None)
    again = rig.daemon()
    again.look(0)
    again.look(None)
    again.look(None)
    assert rig.commands.locks == [LOCK, LOCK]
    again.look(KEEP_SECONDS)
    assert rig.commands.locks == [LOCK, LOCK, UNLOCK]


@pytest.mark.parametrize(("before", "after"), [("this", "next"), ("this", None), (None, None)])
def test_a_restart_of_the_phone_has_given_it_back(
    rig: Rig, before: str | None, after: str | None
) -> None:
    rig.daemon(before).look(None)
    again = rig.daemon(after)
    assert again.standing.state == "not-held"
    again.look(KEEP_SECONDS)
    again.let_go()
    assert rig.commands.locks == [LOCK]


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"boot": "this", "wake_lock": 1}'])
def test_a_damaged_note_gives_back_nothing(rig: Rig, text: str) -> None:
    rig.path.write_text(text)
    rig.daemon().look(KEEP_SECONDS)
    assert rig.commands.locks == []


@pytest.mark.parametrize("mode", ["hang", "fail"])
def test_what_was_perhaps_taken_is_given_back(rig: Rig, mode: str) -> None:
    rig.commands.does(LOCK, mode)
    lock = rig.daemon(seconds=SHORT)
    waits = []
    for _ in range(5):
        wait = lock.look(None)
        assert wait is not None
        assert lock.look(None) == wait, "not before its time"
        waits.append(wait)
        rig.clock.now += wait
    assert waits == [20, 20, 120, 300, 900]
    assert rig.commands.locks == [LOCK] * 5
    assert not rig.commands.leftovers()
    said = {"hang": "did not answer within 0.5 seconds", "fail": "exit code 3: Error: no such"}
    assert lock.standing.state == "unavailable"
    assert f"{LOCK} " in lock.standing.why
    assert said[mode] in lock.standing.why
    assert "may be held all the same" in lock.standing.why
    rig.daemon(seconds=SHORT).look(KEEP_SECONDS)  # also by the one after
    assert rig.commands.locks[5:] == [UNLOCK]


def test_what_could_not_be_given_back_is_tried_again(rig: Rig) -> None:
    rig.lock.look(None)
    rig.commands.does(UNLOCK, "fail")
    assert rig.lock.look(KEEP_SECONDS) == 20
    assert rig.lock.look(KEEP_SECONDS + 10) == 20
    assert rig.lock.standing.state == "unavailable"
    assert rig.path.exists()
    assert rig.commands.locks == [LOCK, UNLOCK]
    rig.lock.look(None)
    assert rig.commands.locks == [LOCK, UNLOCK, LOCK], "that call may have been heard"
    rig.clock.now += 20
    rig.commands.does(UNLOCK, "ok")
    assert rig.lock.look(KEEP_SECONDS) is None
    assert rig.commands.locks == [LOCK, UNLOCK, LOCK, UNLOCK]
    assert not rig.path.exists()


def test_it_is_left_alone_where_it_is_off_or_can_not_be_given_back(rig: Rig) -> None:
    off = rig.daemon(enabled=False)
    assert off.look(None) is None
    assert (off.standing.state, off.standing.why) == ("none", "LORAD_WAKE_LOCK is off")
    rig.commands.remove(UNLOCK)
    lock = rig.daemon()
    assert lock.look(None) is None
    assert (lock.standing.state, lock.standing.why) == ("none", f"{UNLOCK} is not installed")
    assert rig.commands.locks == []


def test_off_gives_back_what_an_earlier_daemon_took(rig: Rig) -> None:
    rig.lock.look(None)
    off = rig.daemon(enabled=False)
    off.look(None)
    off.look(KEEP_SECONDS)
    assert rig.commands.locks == [LOCK, UNLOCK]


def test_what_can_not_be_written_down_is_not_taken(rig: Rig) -> None:
    rig.path = rig.path.parent / "missing" / "phone.json"
    lock = rig.daemon()
    assert lock.look(None) == KEEP_SECONDS
    assert lock.standing.state == "unavailable"
    assert "can't be written down" in lock.standing.why
    assert rig.commands.locks == []
