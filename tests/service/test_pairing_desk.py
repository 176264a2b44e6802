"""The desk of codes by itself: once, in time, with few tries, whatever happens."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_schemas.scopes import Scope
from service.boot_clock import boot_seconds
from service.clients.pairing import (
    CODE_SECONDS,
    MOST_WAITING,
    MOST_WRONG,
    Offer,
    PairingDesk,
    TooManyCodesError,
    WrongCodeError,
)
from tests.service.apps import wrong

READ: tuple[Scope, ...] = ("status:read",)


def offer(name: str = "notes", *, replace: bool = False) -> Offer:
    return Offer(name, READ, {}, replace)


def take(desk: PairingDesk, code: str, name: str | None = None) -> Offer:
    with desk.redeem(code, name) as found:
        return found


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_code_has_eight_digits_and_works_once() -> None:
    desk = PairingDesk()
    code = desk.offer(offer())
    assert len(code) == 8
    assert code.isdecimal()
    assert desk.state("notes") == "waiting"
    assert take(desk, code).name == "notes"
    assert desk.state("notes") == "used"
    with pytest.raises(WrongCodeError):
        take(desk, code)


def test_codes_differ_and_cover_the_range() -> None:
    desk = PairingDesk()
    codes = [desk.offer(offer()) for _ in range(500)]
    assert len(set(codes)) > 490
    assert {code[0] for code in codes} == set("0123456789")


def test_a_code_lasts_two_minutes_and_not_longer() -> None:
    clock = Clock()
    desk = PairingDesk(clock)
    code = desk.offer(offer())
    clock.now += CODE_SECONDS - 0.001
    assert desk.state("notes") == "waiting"
    late = desk.offer(offer("late"))
    clock.now += 0.001
    with pytest.raises(WrongCodeError):
        take(desk, code)
    assert desk.state("notes") == "expired"
    assert take(desk, late).name == "late"


def test_the_clock_counts_suspended_time() -> None:
    assert abs(boot_seconds() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1


def test_five_wrong_tries_in_all_make_every_waiting_code_void() -> None:
    desk = PairingDesk()
    first, second = desk.offer(offer("first")), desk.offer(offer("second"))
    guesses = wrong(first, second)
    for _ in range(MOST_WRONG - 1):
        with pytest.raises(WrongCodeError):
            take(desk, next(guesses))
    third = desk.offer(offer("third"))  # a new code brings no new tries
    with pytest.raises(WrongCodeError):
        take(desk, next(wrong(first, second, third)))
    for code in (first, second, third):
        with pytest.raises(WrongCodeError):
            take(desk, code)
    assert {desk.state(name) for name in ("first", "second", "third")} == {"void"}
    assert take(desk, desk.offer(offer("first"))).name == "first"  # asked for anew, it works


def test_tries_begin_anew_when_no_code_waits() -> None:
    desk = PairingDesk()
    for _ in range(3):
        code = desk.offer(offer())
        for guess, _ in zip(wrong(code), range(MOST_WRONG - 1), strict=False):
            with pytest.raises(WrongCodeError):
                take(desk, guess)
        take(desk, code)


def test_another_name_is_a_wrong_try_and_the_code_still_waits() -> None:
    desk = PairingDesk()
    code = desk.offer(offer("notes"))
    for _ in range(MOST_WRONG - 1):
        with pytest.raises(WrongCodeError):
            take(desk, code, "mail")
    assert take(desk, code, "notes").name == "notes"
    code = desk.offer(offer("notes"))
    for _ in range(MOST_WRONG):
        with pytest.raises(WrongCodeError):
            take(desk, code, "mail")
    assert desk.state("notes") == "void"


def test_a_new_code_for_a_name_takes_the_place_of_the_old() -> None:
    desk = PairingDesk()
    old = desk.offer(offer())
    new = desk.offer(offer())
    with pytest.raises(WrongCodeError):
        take(desk, old)
    assert take(desk, new).name == "notes"


def test_a_withdrawn_code_is_void_and_a_used_one_stays_used() -> None:
    desk = PairingDesk()
    assert desk.void("notes") is None
    code = desk.offer(offer())
    assert desk.void("notes") == "void"
    with pytest.raises(WrongCodeError):
        take(desk, code)
    take(desk, desk.offer(offer()))
    assert desk.void("notes") == "used"


def test_at_most_eight_wait() -> None:
    clock = Clock()
    desk = PairingDesk(clock)
    for number in range(MOST_WAITING):
        desk.offer(offer(f"app{number}"))
        clock.now += 1
    with pytest.raises(TooManyCodesError) as refused:
        desk.offer(offer("one-more"))
    assert refused.value.seconds == CODE_SECONDS - MOST_WAITING
    assert desk.state("app0") == "waiting"
    desk.offer(offer("app7"))  # in the place of its own
    clock.now += refused.value.seconds
    desk.offer(offer("one-more"))


def test_a_failed_pairing_gives_the_code_back_unless_it_became_void() -> None:
    desk = PairingDesk()

    def fail(code: str, tries: int) -> None:
        with desk.redeem(code):
            for _ in range(tries):
                with pytest.raises(WrongCodeError):
                    take(desk, code)
            raise OSError("full")

    code = desk.offer(offer())
    with pytest.raises(OSError, match="full"):
        fail(code, 1)
    assert take(desk, code).name == "notes"
    code = desk.offer(offer())
    with pytest.raises(OSError, match="full"):
        fail(code, MOST_WRONG)
    assert desk.state("notes") == "void"


def test_outcomes_are_not_kept_for_ever() -> None:
    desk = PairingDesk()
    for number in range(1000):
        take(desk, desk.offer(offer(f"app{number}")))
    assert desk.state("app999") == "used"
    assert desk.state("app0") is None


def test_of_many_posts_of_one_code_exactly_one_wins() -> None:
    for _ in range(20):
        desk = PairingDesk()
        code = desk.offer(offer())
        barrier = threading.Barrier(4)

        def attempt(desk: PairingDesk, code: str, barrier: threading.Barrier) -> bool:
            barrier.wait()
            try:
                take(desk, code)
            except WrongCodeError:
                return False
            return True

        with ThreadPoolExecutor(4) as threads:
            won = list(threads.map(lambda _: attempt(desk, code, barrier), range(4)))  # noqa: B023
        assert sum(won) == 1


@given(st.lists(st.sampled_from(["offer", "right", "wrong", "wait"]), max_size=40))
def test_whatever_happens_no_code_gets_more_than_five_wrong_tries(steps: list[str]) -> None:
    """Against a model: a code works exactly if it is in time, unused and not voided."""
    clock = Clock()
    desk = PairingDesk(clock)
    code, expires, alive, tries = "none", 0.0, False, 0
    for step in steps:
        if alive and clock.now >= expires:
            alive = False
        if step == "offer":
            if not alive:
                tries = 0
            code, expires, alive = desk.offer(offer()), clock.now + CODE_SECONDS, True
        elif step == "wait":
            clock.now += 50
        else:
            given_code = code if step == "right" else next(wrong(code))
            if step == "right" and alive:
                assert take(desk, given_code).name == "notes"
                alive = False
            else:
                with pytest.raises(WrongCodeError):
                    take(desk, given_code)
                tries += 1
                alive = alive and tries < MOST_WRONG
