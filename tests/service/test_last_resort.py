"""What happens when lorad itself is wrong, or its disk is: seen through the real app."""

import logging
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy.exc import OperationalError

from service.app import create_app
from service.auth import Authenticator, token_hash
from storage.tables import Client

CANARY = "canary-91b2"
TOKEN = "t" * 43


class Broken:
    """A context in which everything fails with an error that quotes a client's text."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        raise self.error


def ask(error: Exception) -> httpx.Response:
    owner = Client(id=1, name="owner", token_hash=token_hash(TOKEN.encode()))
    app = create_app(Broken(error), Authenticator([owner]), 80, "test")  # type: ignore[arg-type]

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


def test_a_database_that_refuses_is_a_503_to_be_tried_again() -> None:
    refused = OperationalError("INSERT", {"input": CANARY}, Exception("disk is full"))
    response = ask(refused)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "disk is full" in response.json()["detail"]
    assert CANARY not in response.text
