"""From a code on a screen to a token, over the socket."""

import stat
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.clients.pairing import CODE_SECONDS, MOST_WAITING
from tests.service.apps import App, decoded, new_code, pair, redeem, wrong
from tests.service.daemon import Daemon


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
