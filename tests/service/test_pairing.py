"""From a code on a screen to a token: once, in time, with few tries."""

import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_schemas.scopes import Scope
from service.pairing import (
    CODE_SECONDS,
    MOST_WAITING,
    MOST_WRONG,
    Offer,
    PairingDesk,
    TooManyCodesError,
    WrongCodeError,
    boot_seconds,
)
from tests.service.apps import App, decoded, new_code, pair, redeem
from tests.service.daemon import Daemon

READ: tuple[Scope, ...] = ("status:read",)


def offer(name: str = "notes", *, replace: bool = False) -> Offer:
    return Offer(name, READ, {}, replace)


def take(desk: PairingDesk, code: str, name: str | None = None) -> Offer:
    with desk.redeem(code, name) as found:
        return found


def wrong(*codes: str) -> Iterator[str]:
    """Codes that are none of these."""
    return (f"{number:08d}" for number in range(100) if f"{number:08d}" not in codes)


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
    import time

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


# Over the socket.


def test_a_code_becomes_a_client(daemon: Daemon) -> None:
    code = new_code(daemon, "notes", "examples:write", quotas={"most_bytes": None})
    assert daemon.http.get("/v1/pairing-codes/notes").json() == {"state": "waiting"}
    response = redeem(daemon, f"{code[:4]} {code[4:]}", name="notes")
    assert response.status_code == 201, response.text
    assert response.headers["cache-control"] == "no-store"
    credentials = response.json()
    assert credentials["client"] == "notes"
    assert credentials["scopes"] == ["examples:write"]
    assert len(decoded(credentials["token"])) == 32
    assert len(decoded(credentials["server_key"])) == 32
    assert daemon.http.get("/v1/pairing-codes/notes").json() == {"state": "used"}
    with App(daemon, credentials) as app:
        own = app.http.get("/v1/client").json()
        assert own["name"] == "notes"
        assert own["revoked"] is False
        assert own["quotas"] == {
            "examples_per_day": 10_000,
            "most_bytes": None,
            "most_pending": 100_000,
        }
        assert own["usage"] == {"examples_today": 0, "bytes": 0, "pending": 0}


def test_nothing_of_a_pairing_is_kept_but_hashes(daemon: Daemon) -> None:
    code = new_code(daemon, "notes")
    with pair(daemon, "mail") as app:
        redeem(daemon, code)
        needles = [code.encode(), app.token.encode(), app.server_key]
        for file in daemon.home.rglob("*"):
            if file.is_file():
                data = file.read_bytes()
                assert not [one for one in needles if one in data], file
        assert code not in daemon.log()
        assert app.token not in daemon.log()
    master = daemon.home / "server_key"
    assert stat.S_IMODE(master.stat().st_mode) == 0o600
    assert len(master.read_bytes()) == 32


NO_CODES: list[dict[str, Any]] = [
    {"code": "1234567"},
    {"code": "123456789"},
    {"code": "1234-567"},
    {"code": "12345678\n"},
    {"code": "١٢٣٤٥٦٧٨"},
    {"code": 12345678},
    {"code": None},
    {},
    {"code": "12345678", "name": "Not A Name"},
    {"code": "12345678", "more": 1},
]


def test_what_is_no_code_is_422_and_no_try(daemon: Daemon) -> None:
    code = new_code(daemon, "notes")
    for body in NO_CODES:
        response = daemon.http.post("/v1/pair", json=body, headers={"Authorization": ""})
        assert response.status_code == 422, response.text
    assert redeem(daemon, code).status_code == 201


def test_wrong_used_and_voided_codes_get_the_same_answer(daemon: Daemon) -> None:
    used = new_code(daemon, "notes")
    assert redeem(daemon, used).status_code == 201
    waiting = new_code(daemon, "mail")
    answers = [
        redeem(daemon, next(wrong(used, waiting))),
        redeem(daemon, used),
        redeem(daemon, waiting, name="notes"),
    ]
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.text for answer in answers}) == 1
    for _ in range(2):
        redeem(daemon, used)
    assert daemon.http.get("/v1/pairing-codes/mail").json() == {"state": "void"}
    assert redeem(daemon, waiting).text == answers[0].text


def test_a_right_code_posted_at_once_by_many_gives_one_token(daemon: Daemon) -> None:
    code = new_code(daemon, "notes")
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: redeem(daemon, code), range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 403, 403, 403]


def test_a_restart_voids_the_codes_and_keeps_the_clients(daemon: Daemon) -> None:
    app = pair(daemon, "notes")
    code = new_code(daemon, "mail")
    daemon.kill()
    daemon.start()
    assert redeem(daemon, code).status_code == 403
    assert daemon.http.get("/v1/pairing-codes/mail").status_code == 404
    again = App(
        daemon,
        {
            "client": "notes",
            "token": app.token,
            "server_key_id": app.server_key_id,
            "server_key": "",
        },
    )
    again.server_key = app.server_key
    assert again.http.get("/v1/client").json()["name"] == "notes"
    nonce = "A" * 22
    answer = again.http.get("/v1/hello", params={"nonce": nonce, "key": app.server_key_id})
    assert answer.json()["proof"] == again.proof(nonce)


def test_a_name_in_use_needs_replace_and_then_the_old_token_stops(daemon: Daemon) -> None:
    old = pair(daemon, "notes", "status:read", quotas={"most_bytes": 1000})
    body: dict[str, Any] = {"name": "notes", "scopes": ["examples:write"]}
    refused = daemon.http.post("/v1/pairing-codes", json=body)
    assert refused.status_code == 409
    code = new_code(daemon, "notes", "examples:write", replace=True, quotas={"examples_per_day": 5})
    assert old.http.get("/v1/client").status_code == 200  # until the code is used
    new = App(daemon, redeem(daemon, code).json())
    assert old.http.get("/v1/client").status_code == 401
    own = new.http.get("/v1/client").json()
    assert own["scopes"] == ["examples:write"]
    assert own["quotas"] == {"examples_per_day": 5, "most_bytes": 1000, "most_pending": 100_000}
    assert new.server_key != old.server_key


def test_the_owner_cannot_be_paired(daemon: Daemon) -> None:
    body = {"name": "owner", "scopes": ["status:read"], "replace": True}
    refused = daemon.http.post("/v1/pairing-codes", json=body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "body.name"


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("body.scopes", {"scopes": []}),
        ("body.scopes", {"scopes": ["status:read", "status:read"]}),
        ("body.scopes[0]", {"scopes": ["everything"]}),
        ("body.name", {"name": "../etc"}),
        ("body.quotas.most_bytes", {"quotas": {"most_bytes": 0}}),
        ("body.quotas.most_bytes", {"quotas": {"most_bytes": 1.5}}),
        ("body.quotas.most", {"quotas": {"most": 1}}),
        ("body.replace", {"replace": "yes"}),
    ],
)
def test_a_wrong_offer_names_its_field(shared: Daemon, field: str, change: dict[str, Any]) -> None:
    body = {"name": "notes", "scopes": ["status:read"]} | change
    refused = shared.http.post("/v1/pairing-codes", json=body)
    assert refused.status_code == 422
    assert field in [error["field"] for error in refused.json()["errors"]]


def test_the_ninth_waiting_code_is_429_with_retry_after(daemon: Daemon) -> None:
    for number in range(MOST_WAITING):
        new_code(daemon, f"app{number}")
    body = {"name": "one-more", "scopes": ["status:read"]}
    refused = daemon.http.post("/v1/pairing-codes", json=body)
    assert refused.status_code == 429
    assert 100 <= int(refused.headers["retry-after"]) <= CODE_SECONDS + 1
    assert daemon.http.delete("/v1/pairing-codes/app0").json() == {"state": "void"}
    assert daemon.http.post("/v1/pairing-codes", json=body).status_code == 201
