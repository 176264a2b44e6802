"""ASGI: who may speak to the daemon at all, decided before a byte of the body is read.

Every app on a phone can reach 127.0.0.1, and so can every web page in its browsers. So a request
must name this very address (a rebound DNS name does not), must not come from a foreign web page
(those carry Origin or Sec-Fetch-Site), must carry a token, and a body must be JSON (a type that no
form of a web page can send). No answer carries a CORS header, so a preflight never succeeds.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.clients.auth import Authenticator, Caller
from service.door.penalty import Penalty
from service.door.problems import problem_response
from service.page_files import PAGE_FILES

PUBLIC_PATHS = frozenset({"/docs", "/healthz", "/v1/hello", "/v1/pair", *PAGE_FILES})
"""What is answered without a token."""

_OWN_SITES = frozenset({"none", "same-origin"})
_OVER_SOCKET = frozenset({"localhost"})
_BODY_TYPES = frozenset({"application/json", "application/x-ndjson", "application/zip"})

CALLER = "lorad.caller"
"""The key of the scope under which routes find the `Caller`."""


class Guard:
    """Lets requests through that name ``127.0.0.1:port`` or ``localhost:port`` and have a token.

    Over the Unix socket, which no web page can reach, ``localhost`` alone will do.
    """

    def __init__(
        self, app: ASGIApp, authenticator: Authenticator, port: int, penalty: Penalty
    ) -> None:
        """Wrap the app that listens on ``port``; who has no token waits out the ``penalty``."""
        self._app = app
        self._authenticator = authenticator
        self._penalty = penalty
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        server = scope.get("server")
        over_socket = server is not None and server[1] is None
        reason = self._foreign(headers, _OVER_SOCKET if over_socket else frozenset())
        if reason is not None:
            await problem_response(403, reason)(scope, receive, send)
            return
        if scope["path"] not in PUBLIC_PATHS:
            caller = self._caller(headers)
            if caller is None:
                await self._penalty.wait()
                response = problem_response(
                    401,
                    "expected the header 'Authorization: Bearer <token>' with a token that this "
                    "daemon knows; an app gets one by pairing (lorad pair), the owner's lies in "
                    "the file 'token' of the home folder",
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await response(scope, receive, send)
                return
            scope[CALLER] = caller
        if _has_body(headers) and _body_type(headers) not in _BODY_TYPES:
            response = problem_response(
                415,
                "expected a body with the header 'Content-Type: application/json' (UTF-8)",
                headers={"Accept": "application/json"},
            )
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _caller(self, headers: Headers) -> Caller | None:
        given = headers.getlist("authorization")
        if len(given) != 1:
            return None
        return self._authenticator.caller(given[0].encode("latin-1"))

    def _foreign(self, headers: Headers, more: frozenset[str]) -> str | None:
        hosts = headers.getlist("host")
        known = self._hosts | more
        if len(hosts) != 1 or hosts[0] not in known:
            return f"the Host header must be one of {', '.join(sorted(known))}"
        if headers.getlist("origin") not in ([], [f"http://{hosts[0]}"]):
            return "requests from web pages of another origin (by their Origin header) are refused"
        if not set(headers.getlist("sec-fetch-site")) <= _OWN_SITES:
            return "requests from other sites (by their Sec-Fetch-Site header) are refused"
        return None


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _body_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()
