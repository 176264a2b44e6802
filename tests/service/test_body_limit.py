"""Bodies end in time, whoever sends them, and waiting for other things has no end."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.door import body_limit
from service.door.body_limit import BodyLimit
from service.door.guard import CALLER
from service.door.problems import Refusal

HEAD: dict[str, Any] = {"type": "http", "headers": []}
CALLERS = HEAD | {CALLER: "somebody"}


async def no_send(message: Message) -> None:
    raise AssertionError(message)


def receive_all(scope: dict[str, Any], *messages: tuple[float, Message]) -> list[Message]:
    """What an app behind the limit receives, of messages that come after so many seconds each."""
    coming = iter(messages)
    received: list[Message] = []

    async def receive() -> Message:
        seconds, message = next(coming)
        await asyncio.sleep(seconds)
        return message

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in messages:
            received.append(await receive())

    asyncio.run(BodyLimit(app)(scope, receive, no_send))
    return received


def part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "MOST_SECONDS", 0.4)
    monkeypatch.setattr(body_limit, "MOST_STRANGERS_SECONDS", 0.1)


def test_a_body_that_trickles_is_refused_in_the_end() -> None:
    parts = [(0.03, part(b"x", more=True))] * 50
    for scope in (HEAD, CALLERS):
        with pytest.raises(Refusal) as refused:
            receive_all(scope, *parts)
        assert refused.value.status_code == 408
        assert (refused.value.headers or {})["Connection"] == "close"


def test_a_caller_has_more_time() -> None:
    slow = [(0.1, part(b"x", more=True)), (0.1, part(b"y", more=False))]
    assert len(receive_all(CALLERS, *slow)) == 2
    with pytest.raises(Refusal):
        receive_all(HEAD, *slow)


def test_after_the_body_there_is_no_hurry() -> None:
    """A stream of events listens for the end of its connection for hours."""
    messages = [(0.0, part(b"", more=False)), (0.6, {"type": "http.disconnect"})]
    for scope in (HEAD, CALLERS):
        assert receive_all(scope, *messages)[-1] == {"type": "http.disconnect"}
