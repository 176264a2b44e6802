"""What happens when lorad itself is wrong, or its disk is: seen through the real app."""

import errno
import logging
import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.app import create_app
from service.clients.auth import Authenticator, token_hash
from service.door.penalty import Penalty
from service.home import Home
from service.metrics.requests import RequestCounts
from service.runs.run_feed import RunFeed
from service.runs.supervisor import Supervisor
from service.settings import Settings
from storage import adapters, clients, runs
from storage.database import Database
from storage.tables import Adapter, Client, Run
from tests.service.choosers import OldestFirst

CANARY = "canary-91b2"
TOKEN = "t" * 43


class Broken:
    """A context in which everything behind the door fails, quoting what a client sent."""

    penalty = Penalty()
    requests = RequestCounts()
    eraser = SimpleNamespace(note_request=lambda: None)

    def __init__(self, error: Exception, authenticator: Authenticator) -> None:
        self.error, self.authenticator = error, authenticator

    def __getattr__(self, name: str) -> Any:
        raise self.error


def ask(error: Exception) -> httpx.Response:
    owner = Client(id=1, name="owner", scopes=["admin"], token_hash=token_hash(TOKEN.encode()))
    authenticator = Authenticator([owner])
    app = create_app(Broken(error, authenticator), authenticator, 80, "test")  # type: ignore[arg-type]

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:80") as client:
            headers = {"Authorization": f"Bearer {TOKEN}", "Host": "127.0.0.1:80"}
            return await client.get("/v1/adapters", headers=headers)

    return anyio.run(send)


def test_an_error_of_ours_is_a_500_problem_and_its_text_stays_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        response = ask(RuntimeError(f"can't store {CANARY}"))
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["title"] == "Internal Server Error"
    assert CANARY not in response.text
    assert CANARY not in caplog.text
    assert "unhandled RuntimeError" in caplog.text
    assert "routes/adapters.py" in caplog.text  # the place is told


def of_sqlite(code: int, text: str) -> Exception:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def of_database(error: Exception) -> Exception:
    kind = {
        sqlite3.OperationalError: OperationalError,
        sqlite3.DatabaseError: DatabaseError,
        sqlite3.IntegrityError: IntegrityError,
    }[type(error)]  # type: ignore[index]
    return kind("INSERT", {"input": CANARY}, error)


@pytest.mark.parametrize(
    ("error", "status", "retry_after", "words"),
    [
        (of_database(of_sqlite(sqlite3.SQLITE_BUSY, "is locked")), 503, "1", "is locked"),
        (of_database(sqlite3.DatabaseError("malformed")), 503, "1", "malformed"),
        (PoolTimeoutError("QueuePool limit"), 503, "1", "too many readers"),
        (OSError(errno.EIO, "Input/output error", CANARY), 503, "1", "Input/output error"),
        (of_database(of_sqlite(sqlite3.SQLITE_FULL, CANARY)), 507, "60", "free some"),
        (OSError(errno.ENOSPC, "No space left", CANARY), 507, "60", "free some"),
        (OSError(errno.EDQUOT, "Quota exceeded", CANARY), 507, "60", "free some"),
    ],
)
def test_what_passes_is_to_be_tried_again(
    error: Exception, status: int, retry_after: str, words: str
) -> None:
    response = ask(error)
    assert response.status_code == status
    assert response.headers["retry-after"] == retry_after
    assert response.headers["content-type"] == "application/problem+json"
    assert words in response.json()["detail"]
    assert CANARY not in response.text


def test_a_broken_rule_of_the_database_is_an_error_of_ours() -> None:
    response = ask(of_database(sqlite3.IntegrityError(CANARY)))
    assert response.status_code == 500
    assert CANARY not in response.text


def test_an_error_of_ours_fails_its_run_and_the_queue_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home.at(tmp_path / "home")
    home.create()

    def wrong(*arguments: Any) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr("service.runs.supervisor.read_spec", wrong)
    with Database(home.database) as database:
        with database.write() as session:
            owner = clients.put(session, "owner", b"\x01" * 32)
            run_ids = [
                runs.enqueue(session, adapters.create(session, adapter(owner.id, name)).id).id
                for name in ("first", "second")
            ]
        supervisor = Supervisor(Settings(), home, database, RunFeed(), OldestFirst())
        supervisor.start()
        deadline = time.monotonic() + 20
        ended: list[Run | None] = []
        while not ended or any(run is None or run.status != "failed" for run in ended):
            assert time.monotonic() < deadline
            time.sleep(0.02)
            with database.read() as session:
                ended = [runs.by_id(session, run_id) for run_id in run_ids]
        supervisor.stop()
    assert CANARY not in caplog.text


def adapter(client_id: int, name: str) -> Adapter:
    return Adapter(
        client_id=client_id,
        name=name,
        base_model="tiny",
        base_hash="sha256:tiny",
        method="first_order",
        rank=8,
        alpha=16.0,
        targets=["q_proj"],
        use_rslora=False,
        max_tokens=64,
        too_long="refuse",
        training={},
    )
