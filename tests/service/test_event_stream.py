"""The response that carries events: its bytes, its end, its readers."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.runs import event_stream
from service.runs.event_stream import KEEP_ALIVE, EventStream, event
from tests.service.sse import events_of


def test_any_data_comes_back_as_it_was() -> None:
    value = {"a": "line\nline\r\n: no comment\u2028\u2029 ü😀", "id": "data: x"}
    frames = event("status", json.dumps(value), "b-1") + KEEP_ALIVE
    frames += event("end", json.dumps(value, ensure_ascii=False).replace("\u2028", ""), "end-1")
    comments: list[str] = []
    for size in (1, 3, len(frames)):
        parts = [frames[i : i + size] for i in range(0, len(frames), size)]
        found = list(events_of(parts, comments))
        assert [(one.name, one.last_id) for one in found] == [("status", "b-1"), ("end", "end-1")]
        assert found[0].data == value
    assert comments == [" keep-alive"] * 3


class Client:
    """The other end of the ASGI protocol."""

    def __init__(self, *, stalls: bool = False) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.stalls = stalls

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if self.stalls and message.get("body"):
            await asyncio.Event().wait()


async def endless(closed: list[str]) -> AsyncIterator[bytes]:
    try:
        while True:
            yield KEEP_ALIVE
            await asyncio.sleep(0.01)
    finally:
        closed.append("frames")


def stream(client: Client, frames: AsyncIterator[bytes], closed: list[str]) -> Any:
    response = EventStream(frames, lambda: closed.append("place"))
    return response({"type": "http"}, client.receive, client.send)


def test_it_ends_with_its_frames() -> None:
    async def two() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def run() -> tuple[list[dict[str, Any]], list[str]]:
        client, closed = Client(), list[str]()
        await asyncio.wait_for(stream(client, two(), closed), 5)
        return client.sent, closed

    sent, closed = asyncio.run(run())
    assert [(m.get("body"), m.get("more_body")) for m in sent[1:]] == [
        (b"a", True),
        (b"b", True),
        (b"", False),
    ]
    headers = dict(sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"
    assert b"content-length" not in headers
    assert closed == ["place"]


def test_it_ends_when_the_reader_goes() -> None:
    async def run() -> list[str]:
        client, closed = Client(), list[str]()
        task = asyncio.create_task(stream(client, endless(closed), closed))
        await asyncio.sleep(0.1)
        client.gone.set()
        await asyncio.wait_for(task, 5)
        return closed

    assert "place" in asyncio.run(run())


def test_a_reader_that_takes_nothing_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "STALLED_SECONDS", 0.1)

    async def run() -> tuple[int, list[str]]:
        client, closed = Client(stalls=True), list[str]()
        await asyncio.wait_for(stream(client, endless(closed), closed), 5)
        return len(client.sent), closed

    sent, closed = asyncio.run(run())
    assert sent == 2  # the start, and the one frame that was never taken
    assert "place" in closed
