"""ASGI: no request body over a limit, counted while it streams in, so memory stays flat.

And none that takes for ever, so that half-sent requests can't use up the daemon's connections.
"""

import asyncio
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.door.guard import CALLER
from service.door.problems import Refusal, problem_response

MOST_BODY_BYTES = 2 * 1024 * 1024
MOST_SECONDS = 60.0

MOST_IMPORT_BYTES = 256 * 1024 * 1024
"""Of an adapter that is imported; it goes to the disk as it comes in."""

_IMPORT = re.compile(r"/v1/adapters/[^/]+/versions/import")

MOST_STRANGERS_BYTES = 4096
"""Of a request that needs no token, so that apps without one can't make the daemon grow."""

MOST_STRANGERS_SECONDS = 10.0


class BodyLimit:
    """Answers 413 or 408 as soon as a body is over its limit, however it is sent."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap the app."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most, seconds = MOST_BODY_BYTES, MOST_SECONDS
        remedy = "send the examples in several requests"
        if _IMPORT.fullmatch(scope.get("path", "")):
            most, remedy = MOST_IMPORT_BYTES, "import an adapter of a lower rank"
        if CALLER not in scope:
            most, seconds = MOST_STRANGERS_BYTES, MOST_STRANGERS_SECONDS
        reason = f"the body may have at most {most} bytes; {remedy}"
        slow = f"the body must arrive within {seconds:.0f} seconds; send it again, or less at once"
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdecimal() or int(declared[:20]) > most:
            await problem_response(413, reason)(scope, receive, send)
            return
        received, more = 0, True
        deadline = asyncio.get_running_loop().time() + seconds

        async def counted_receive() -> Message:
            nonlocal received, more
            try:
                async with asyncio.timeout_at(deadline if more else None):
                    message = await receive()
            except TimeoutError:
                raise Refusal(408, slow, headers={"Connection": "close"}) from None
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
            if received > most:
                raise Refusal(413, reason)
            return message

        await self._app(scope, counted_receive, send)
