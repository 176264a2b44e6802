"""The daemon proves who it is: bound to its port, its client's key and the client's nonce."""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.clients.server_key import ServerKeys, master_key
from service.secret_file import SecretFileError
from tests.service.apps import App, decoded, pair
from tests.service.daemon import Daemon, add_stand_in_model


@pytest.fixture(scope="module")
def app(shared: Daemon) -> Iterator[App]:
    with pair(shared, "notes") as app:
        yield app


def nonce(size: int = 32) -> str:
    return secrets.token_urlsafe(size)


def hello(daemon: Daemon, **query: str) -> httpx.Response:
    """Asked without any token."""
    address = f"http://127.0.0.1:{daemon.port}/v1/hello"
    return httpx.get(address, params=query, trust_env=False)


def test_a_known_answer() -> None:
    """Computed with openssl, so that other programs can be written by the description alone."""
    keys = ServerKeys(bytes(range(32)), 8765)
    key = "e6d10f75ee2808a1fff4bd485d02a4c100a322c3992b6160c360fb0bd2eecd78"
    proof = "6dcc945cb0065e085d6f01d83ecec619b6bb3868924cb7c637a99d3236525cc3"
    assert keys.of("abc").hex() == key
    assert keys.proof("abc", "bm9uY2U", known=True).hex() == proof


def test_the_proof_is_the_clients_to_check(shared: Daemon, app: App) -> None:
    for sent in (nonce(16), nonce(64), nonce(32) + "=", base64.urlsafe_b64encode(b"7" * 16)):
        text = sent if isinstance(sent, str) else sent.decode()
        response = hello(shared, nonce=text, key=app.server_key_id)
        assert response.status_code == 200, response.text
        assert response.json() == {"proof": app.proof(text)}
        assert len(decoded(response.json()["proof"])) == 32


def test_the_proof_says_port_and_nonce(shared: Daemon, app: App) -> None:
    """So a relay on another port, and a replay, are found out."""
    first, second = nonce(), nonce()
    proof = hello(shared, nonce=first, key=app.server_key_id).json()["proof"]
    assert proof != app.proof(first, port=shared.port + 1)
    assert proof != app.proof(second)


def test_by_localhost_the_proof_is_the_same(shared: Daemon, app: App) -> None:
    sent = nonce()
    response = httpx.get(
        f"http://localhost:{shared.port}/v1/hello",
        params={"nonce": sent, "key": app.server_key_id},
        trust_env=False,
    )
    assert response.json()["proof"] == app.proof(sent)


def test_an_unknown_key_is_answered_alike_and_no_key_fits(shared: Daemon, app: App) -> None:
    sent = nonce()
    for key in ("nobody", "0" * 32, app.server_key_id[:-1], "_" * 64):
        response = hello(shared, nonce=sent, key=key)
        assert response.status_code == 200
        assert response.json()["proof"] != app.proof(sent)
        assert response.json() == hello(shared, nonce=sent, key=key).json()


def test_a_key_stops_when_it_is_replaced_and_stays_when_the_token_is_revoked(
    daemon: Daemon,
) -> None:
    with pair(daemon, "notes") as app:
        sent = nonce()

        def proves() -> bool:
            response = hello(daemon, nonce=sent, key=app.server_key_id)
            return bool(response.json()["proof"] == app.proof(sent))

        assert proves()
        daemon.http.post("/v1/clients/notes/revoke")
        assert proves()  # so the app learns from the 401 that it has to be paired again
        with pair(daemon, "notes", replace=True) as again:
            assert not proves()
            credentials = again.http.post("/v1/client/rotate").json()
        assert credentials["server_key_id"] != again.server_key_id
        old = hello(daemon, nonce=sent, key=again.server_key_id)
        assert old.json()["proof"] != again.proof(sent)
        rotated = App(daemon, credentials)
        new = hello(daemon, nonce=sent, key=rotated.server_key_id)
        assert new.json()["proof"] == rotated.proof(sent)


@pytest.mark.parametrize(
    ("field", "query"),
    [
        ("query.nonce", {"key": "abc"}),
        ("query.key", {"nonce": "A" * 22}),
        ("query.nonce", {"key": "abc", "nonce": ""}),
        ("query.nonce", {"key": "abc", "nonce": "A" * 21}),
        ("query.nonce", {"key": "abc", "nonce": "A" * 25}),  # no base64 has this length
        ("query.nonce", {"key": "abc", "nonce": "A" * 87}),
        ("query.nonce", {"key": "abc", "nonce": "A" * 22 + "==="}),
        ("query.nonce", {"key": "abc", "nonce": "A" * 11 + "=" + "A" * 11}),
        ("query.nonce", {"key": "abc", "nonce": "A" * 21 + "+"}),
        ("query.nonce", {"key": "abc", "nonce": "A" * 22 + "\n"}),
        ("query.key", {"key": "", "nonce": "A" * 22}),
        ("query.key", {"key": "a" * 65, "nonce": "A" * 22}),
        ("query.key", {"key": "a b", "nonce": "A" * 22}),
        ("query.key", {"key": "abc\n", "nonce": "A" * 22}),
    ],
)
def test_a_wrong_question_is_422(shared: Daemon, field: str, query: dict[str, str]) -> None:
    response = hello(shared, **query)
    assert response.status_code == 422, response.text
    assert [error["field"] for error in response.json()["errors"]] == [field]


QUESTIONS = st.tuples(st.text("ab1_-", min_size=1), st.integers(0, 65535), st.text("AB-_"))


@given(st.binary(min_size=32, max_size=32), st.tuples(QUESTIONS, QUESTIONS), st.booleans())
def test_no_two_questions_share_a_proof(master: bytes, asked: tuple[Any, Any], known: bool) -> None:
    (key_1, port_1, nonce_1), (key_2, port_2, nonce_2) = asked
    first = ServerKeys(master, port_1).proof(key_1, nonce_1, known=True)
    second = ServerKeys(master, port_2).proof(key_2, nonce_2, known=known)
    assert (first == second) == (known and asked[0] == asked[1])


def test_the_master_key_survives_a_restart_and_a_torn_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server_key"
    key = master_key(path)
    assert master_key(path) == key
    path.chmod(0o644)
    master_key(path)
    assert path.stat().st_mode & 0o077 == 0
    for size in (0, 31, 33):
        path.write_bytes(b"x" * size)
        with pytest.raises(SecretFileError, match=f"holds {size}; delete it"):
            master_key(path)


def test_two_homes_have_different_keys(tmp_path: Path, shared: Daemon, app: App) -> None:
    home = tmp_path / "other"
    add_stand_in_model(home)
    with Daemon(home) as other:
        sent = nonce()
        answer = hello(other, nonce=sent, key=app.server_key_id).json()
        assert answer["proof"] != app.proof(sent, port=other.port)
