"""ASGI: who may speak to the daemon at all, decided before a byte of the body is read.

Every app on a phone can reach 127.0.0.1, and so can every web page in its browsers. So a request
must name this very address (a rebound DNS name does not), must not come from a web page (those
carry Origin or Sec-Fetch-Site), and must carry a token.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth import Authenticator
from service.problems import problem_response

PUBLIC_PATHS = frozenset({"/docs", "/healthz"})
_OWN_SITES = frozenset({"none", "same-origin"})

CALLER = "lorad.caller"
"""The key of the scope under which routes find the `Caller`."""


class Guard:
    """Lets requests through that name ``127.0.0.1:port`` or ``localhost:port`` and have a token."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, port: int) -> None:
        """Wrap the app that listens on ``port``."""
        self._app = app
        self._authenticator = authenticator
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        reason = self._foreign(headers)
        if reason is not None:
            await problem_response(403, reason)(scope, receive, send)
            return
        if scope["path"] not in PUBLIC_PATHS:
            authorization = headers.get("authorization")
            caller = self._authenticator.caller(
                None if authorization is None else authorization.encode("latin-1")
            )
            if caller is None:
                response = problem_response(
                    401,
                    "expected the header 'Authorization: Bearer <token>' with a token that this "
                    "daemon knows; the owner's lies in the file 'token' of the home folder",
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await response(scope, receive, send)
                return
            scope[CALLER] = caller
        await self._app(scope, receive, send)

    def _foreign(self, headers: Headers) -> str | None:
        if headers.getlist("host") not in ([host] for host in self._hosts):
            return f"the Host header must be one of {', '.join(sorted(self._hosts))}"
        if "origin" in headers:
            return "requests from web pages (with an Origin header) are refused"
        if not set(headers.getlist("sec-fetch-site")) <= _OWN_SITES:
            return "requests from other sites (by their Sec-Fetch-Site header) are refused"
        return None
