"""Server-sent events: their bytes, and a response that ends when its reader does."""

from collections.abc import AsyncIterator, Callable

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "text/event-stream"
STALLED_SECONDS = 60.0
"""A reader that takes nothing for so long has its stream ended; it may come back for the rest."""

KEEP_ALIVE = b": keep-alive\n\n"


def event(name: str, data: str, event_id: str) -> bytes:
    """One event; ``data`` is JSON on one line."""
    return f"id: {event_id}\nevent: {name}\ndata: {data}\n\n".encode()


class EventStream(Response):
    """Sends frames as they come, without ever holding more than one."""

    def __init__(self, frames: AsyncIterator[bytes], close: Callable[[], None]) -> None:
        """Send ``frames`` to their end; ``close`` is called when it is over, however it ends."""
        super().__init__(None, headers={"Cache-Control": "no-store"}, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._frames = frames
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_until_disconnected, receive, group.cancel_scope)
                await self._send(send)
                group.cancel_scope.cancel()
        finally:
            self._close()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for frame in self._frames:
            with anyio.move_on_after(STALLED_SECONDS) as patience:
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            if patience.cancelled_caught:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_disconnected(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
