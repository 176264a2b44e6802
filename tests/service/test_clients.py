"""Tokens stop at once, failing costs only the one who fails, and the owner sees to the clients."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from service.clients.auth import Authenticator, Caller, token_hash
from service.door.penalty import MOST_WAITING, SECONDS
from storage import clients
from storage.database import Database
from storage.tables import Client
from tests.service.apps import ALL_BUT_ADMIN, App, new_code, pair, redeem
from tests.service.daemon import Daemon, until


def status(daemon: Daemon, token: str, path: str = "/v1/client") -> int:
    return httpx.get(
        f"http://127.0.0.1:{daemon.port}{path}",
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
        trust_env=False,
    ).status_code


def test_an_app_sees_who_it_is_and_what_it_has_used(daemon: Daemon) -> None:
    with pair(daemon, "notes", quotas={"most_pending": None}) as app:
        body = {"name": "phone", "base_model": "tiny", "labels": ["now", "later"]}
        assert app.http.post("/v1/adapters", json=body).status_code == 201
        example = {"input": "é", "label": "now", "split": "train"}
        assert app.http.post("/v1/adapters/phone/examples", json=example).status_code == 201
        own = app.http.get("/v1/client").json()
        assert own["usage"]["bytes"] == 5
        assert own["usage"]["pending"] == 1
        assert own["scopes"] == list(ALL_BUT_ADMIN)
        assert own["quotas"]["most_pending"] is None
        assert own == daemon.http.get("/v1/clients/notes").json()


def test_the_owner_lists_the_clients_a_page_at_a_time(daemon: Daemon) -> None:
    for number in range(3):
        pair(daemon, f"app{number}")
    names, cursor = [], {}
    while True:
        page = daemon.http.get("/v1/clients", params={"limit": 2} | cursor).json()
        names += [client["name"] for client in page["clients"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert names == ["app0", "app1", "app2", "owner"]
    for wrong in ({"cursor": "x"}, {"limit": 0}, {"limit": 201}):
        assert daemon.http.get("/v1/clients", params=wrong).status_code == 422
    assert "token" not in daemon.http.get("/v1/clients").text


def test_a_revoked_token_stops_at_once_and_the_data_stays(daemon: Daemon) -> None:
    with pair(daemon, "notes") as app:
        app.http.post("/v1/adapters", json={"name": "phone", "base_model": "tiny"})
        answer = daemon.http.post("/v1/clients/notes/revoke")
        assert (answer.status_code, answer.json()["revoked"]) == (200, True)
        assert app.http.get("/v1/client").status_code == 401
        again = daemon.http.post("/v1/clients/notes/revoke")
        assert again.json() == answer.json()
    assert daemon.http.get("/v1/adapters?client=notes").json()["adapters"][0]["name"] == "phone"
    daemon.kill()
    daemon.start()
    assert status(daemon, app.token) == 401
    with pair(daemon, "notes", replace=True) as renewed:
        assert renewed.http.get("/v1/adapters").json()["adapters"][0]["name"] == "phone"


@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson"])
def test_a_body_that_arrives_after_the_revocation_changes_nothing(
    daemon: Daemon, content_type: str
) -> None:
    app = pair(daemon, "notes")
    app.http.post("/v1/adapters", json={"name": "phone", "base_model": "tiny"})
    body = b'{"input": "hello", "label": "now"}'
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as connection:
        connection.sendall(
            b"POST /v1/adapters/phone/examples HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Connection: close\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n"
            b"Content-Length: %d\r\n\r\n%s"
            % (daemon.port, app.token.encode(), content_type.encode(), len(body), body[:5])
        )
        time.sleep(0.3)  # the guard has let it in by now
        daemon.http.post("/v1/clients/notes/revoke")
        connection.sendall(body[5:])
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 401"), answer
    phone = daemon.http.get("/v1/adapters/phone?client=notes").json()
    assert phone["examples"]["bytes"] == 0


def test_nothing_is_kept_once_a_revocation_is_answered(daemon: Daemon) -> None:
    """However many requests are under way, let in by the guard and waiting for the writer."""
    app = pair(daemon, "notes")
    app.http.post("/v1/adapters", json={"name": "phone", "base_model": "tiny"})
    stop = threading.Event()

    def post(number: int) -> int:
        kept = 0
        with httpx.Client(base_url=app.http.base_url, headers=app.http.headers) as http:
            while not stop.is_set():
                example = {"input": f"{number} {kept}", "label": "now"}
                status = http.post("/v1/adapters/phone/examples", json=example).status_code
                if status == 401:
                    return kept
                assert status == 201
                kept += 1
        raise AssertionError("the token went on working")

    def count() -> int:
        examples = daemon.http.get("/v1/adapters/phone?client=notes").json()["examples"]
        return int(examples["train"] + examples["holdout"])

    with ThreadPoolExecutor(8) as threads:
        posting = [threads.submit(post, number) for number in range(8)]
        until(lambda: count() > 8)
        daemon.http.post("/v1/clients/notes/revoke")
        after = count()
        kept = [one.result(30) for one in posting]
        stop.set()
    assert count() == after == sum(kept)
    assert after > 8


def test_rotating_gives_new_credentials_and_the_old_stop(daemon: Daemon) -> None:
    with pair(daemon, "notes", "train", quotas={"most_bytes": 5}) as app:
        response = app.http.post("/v1/client/rotate")
        assert response.status_code == 200
        assert response.headers["cache-control"] == "no-store"
        assert status(daemon, app.token) == 401
        second = App(daemon, response.json())
        third = App(daemon, daemon.http.post("/v1/clients/notes/rotate").json())
        assert status(daemon, second.token) == 401
        own = third.http.get("/v1/client").json()
        assert (own["scopes"], own["quotas"]["most_bytes"]) == (["train"], 5)
        assert len({app.token, second.token, third.token}) == 3
        assert len({app.server_key, second.server_key, third.server_key}) == 3
    daemon.http.post("/v1/clients/notes/revoke")
    refused = daemon.http.post("/v1/clients/notes/rotate")
    assert refused.status_code == 409  # else it would undo the revocation


def test_of_two_rotations_at_once_the_winner_has_the_valid_token(daemon: Daemon) -> None:
    """The loser must not leave the winner with a token that stopped before it arrived."""
    app = pair(daemon, "notes")
    for _ in range(5):
        with ThreadPoolExecutor(4) as threads:
            answers = list(
                threads.map(
                    lambda app: httpx.post(
                        f"http://127.0.0.1:{daemon.port}/v1/client/rotate",
                        headers={"Authorization": f"Bearer {app.token}"},
                        timeout=30,
                        trust_env=False,
                    ),
                    [app] * 4,
                )
            )
        assert sorted(answer.status_code for answer in answers) == [200, 401, 401, 401]
        [won] = [answer for answer in answers if answer.status_code == 200]
        app = App(daemon, won.json())
        assert app.http.get("/v1/client").status_code == 200


def test_changes_of_scopes_and_quotas_hold_at_once(daemon: Daemon) -> None:
    with pair(daemon, "notes", "status:read") as app:
        new = {"name": "phone", "base_model": "tiny"}
        assert app.http.post("/v1/adapters", json=new).status_code == 403
        change: dict[str, Any] = {"scopes": ["adapters:manage"], "quotas": {"most_bytes": None}}
        changed = daemon.http.patch("/v1/clients/notes", json=change)
        assert changed.status_code == 200
        assert changed.json()["quotas"] == {
            "examples_per_day": 10_000,
            "most_bytes": None,
            "most_pending": 100_000,
        }
        assert app.http.post("/v1/adapters", json=new).status_code == 201
        assert app.http.get("/v1/adapters").status_code == 403
        assert daemon.http.patch("/v1/clients/notes", json={}).json() == changed.json()
    for wrong in ({"name": "other"}, {"scopes": []}, {"quotas": {"most_bytes": -1}}):
        assert daemon.http.patch("/v1/clients/notes", json=wrong).status_code == 422
    assert daemon.http.get("/v1/clients/notes").json() == changed.json()
    history = daemon.http.get("/v1/history?client=notes").json()["entries"]
    assert [entry["kind"] for entry in history][-3:] == [
        "adapter-created",
        "client-changed",
        "client-paired",
    ]


def test_the_owner_keeps_its_rights(shared: Daemon) -> None:
    for method, rest, body in (
        ("PATCH", "", {"scopes": ["train"]}),
        ("POST", "/revoke", None),
        ("POST", "/rotate", None),
    ):
        refused = shared.http.request(method, f"/v1/clients/owner{rest}", json=body)
        assert refused.status_code == 409, refused.text
    assert shared.http.post("/v1/client/rotate").status_code == 409
    assert shared.http.get("/v1/client").json()["scopes"] == ["admin"]


def test_an_admin_app_may_what_the_owner_may_but_not_to_the_owner(daemon: Daemon) -> None:
    with pair(daemon, "manager", "admin") as manager:
        made = manager.http.post("/v1/pairing-codes", json={"name": "b", "scopes": ["train"]})
        assert made.status_code == 201
        assert redeem(daemon, made.json()["code"]).status_code == 201
        assert manager.http.post("/v1/clients/b/revoke").status_code == 200
        assert manager.http.post("/v1/clients/owner/rotate").status_code == 409


def test_a_flood_of_bad_tokens_slows_only_itself(shared: Daemon) -> None:
    """200 at once; meanwhile a good client is served as ever, and the daemon keeps no backlog."""
    stop = threading.Event()
    took: list[float] = []

    def good() -> None:
        with httpx.Client(
            trust_env=False, headers={"Authorization": f"Bearer {shared.token}"}
        ) as h:
            while not stop.is_set():
                started = time.perf_counter()
                answer = h.get(f"http://127.0.0.1:{shared.port}/v1/client", timeout=30)
                took.append(time.perf_counter() - started)
                assert answer.status_code == 200
                time.sleep(0.01)

    thread = threading.Thread(target=good)
    thread.start()
    connections = [socket.create_connection(("127.0.0.1", shared.port)) for _ in range(200)]
    try:
        started = time.perf_counter()
        for connection in connections:
            connection.sendall(
                b"GET /v1/client HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n"
                b"Authorization: Bearer wrong\r\n\r\n" % shared.port
            )
        answers = [connection.recv(12) for connection in connections]
        elapsed = time.perf_counter() - started
    finally:
        stop.set()
        thread.join()
        for connection in connections:
            connection.close()
    assert set(answers) == {b"HTTP/1.1 401"}
    assert SECONDS <= elapsed < 50 * SECONDS  # some wait, and they don't queue up
    assert sorted(took)[len(took) // 2] < SECONDS


def test_a_failure_waits_unless_too_many_wait_already(shared: Daemon) -> None:
    started = time.perf_counter()
    assert status(shared, "wrong") == 401
    assert time.perf_counter() - started >= SECONDS
    started = time.perf_counter()
    code = new_code(shared, "slow")
    assert redeem(shared, "0000-0000" if code != "00000000" else "00000001").status_code == 403
    assert time.perf_counter() - started >= SECONDS
    assert MOST_WAITING < 200


def test_what_was_found_valid_is_looked_at_again(tmp_path: Any) -> None:
    with Database(tmp_path / "lorad.db") as database:
        with database.write() as session:
            for name in ("a", "b"):
                row = clients.put(session, name, token_hash(name.encode()))
                row.scopes = ["status:read", "train"]
        known = Authenticator([])
        known.learn(database)
        a, b = known.caller(b"Bearer a"), known.caller(b"Bearer b")
        assert a is not None
        assert b is not None
        assert known.still_valid(a)

        def change(**values: Any) -> None:
            with database.write() as session:
                row = clients.find(session, "a")
                assert row is not None
                for key, value in values.items():
                    setattr(row, key, value)
                session.add(row)
            known.learn(database)

        change(scopes=["status:read"])
        assert not known.still_valid(a)  # it was let in with more
        change(scopes=["status:read", "train", "predict"])
        assert known.still_valid(a)
        change(token_hash=token_hash(b"new"))
        assert not known.still_valid(a)
        change(token_hash=None)
        assert not known.still_valid(a)
        assert known.still_valid(b)
        assert known.named("a") is not None
    assert not known.still_valid(Caller(1, "a", frozenset()))


def test_the_latest_of_many_changes_is_what_is_known(tmp_path: Any) -> None:
    """A slow reader of an older state must not overwrite a newer one: it would undo revocations."""
    with Database(tmp_path / "lorad.db") as database:
        with database.write() as session:
            for number in range(8):
                clients.put(session, f"app{number}", token_hash(b"%d" % number))
        known = Authenticator([])
        known.learn(database)

        def revoke(number: int) -> None:
            with database.write() as session:
                row = clients.find(session, f"app{number}")
                assert row is not None
                row.token_hash = None
                session.add(row)
            known.learn(database)
            assert known.caller(b"Bearer %d" % number) is None

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(revoke, range(8)))
        assert [known.caller(b"Bearer %d" % number) for number in range(8)] == [None] * 8


@pytest.mark.parametrize("replace", [True, False])
def test_pairing_keeps_what_is_not_named(tmp_path: Any, replace: bool) -> None:
    defaults = {"examples_per_day": 1, "most_bytes": 2, "most_pending": 3}
    with Database(tmp_path / "lorad.db") as database, database.write() as session:
        if replace:
            session.add(Client(name="a", most_bytes=7, most_pending=None))
            session.flush()
        row = clients.pair(
            session,
            "a",
            b"\1" * 32,
            ["train"],
            {"most_pending": 9},
            defaults=defaults,
            replace=True,
        )
        expected = (None, 7, 9) if replace else (1, 2, 9)
        assert (row.examples_per_day, row.most_bytes, row.most_pending) == expected
        with pytest.raises(clients.ClientExistsError):
            clients.pair(session, "a", b"\2" * 32, [], {}, defaults=defaults, replace=False)
