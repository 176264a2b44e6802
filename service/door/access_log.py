"""ASGI: one line a request, with the route's pattern in place of its address.

An address can carry names, queries and whatever a confused client puts there; the pattern can't.
"""

import logging
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics.requests import RequestCounts

_log = logging.getLogger("lorad.access")


class AccessLog:
    """Logs and counts every request: method, route, status, how long it took."""

    def __init__(
        self, app: ASGIApp, on_request: Callable[[], None], requests: RequestCounts
    ) -> None:
        """Wrap the app; ``on_request`` is called as each request comes, ``requests`` counts it."""
        self._app = app
        self._requests = requests
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._on_request()
        started = time.perf_counter()
        status = 0

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        finally:
            seconds = time.perf_counter() - started
            pattern = getattr(scope.get("route"), "path_format", "(no route)")
            method = scope["method"] if scope["method"] in _METHODS else "(other)"
            self._requests.count(method, pattern, status, seconds)
            milliseconds = round(seconds * 1000, 1)
            told = {"event": "request", "method": method, "route": pattern, "status": status}
            _log.info(
                "%s %s %d %.1f ms",
                method,
                pattern,
                status,
                milliseconds,
                extra=told | {"milliseconds": milliseconds},
            )


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
