"""Every error of the daemon as problem details (RFC 9457), and none with a person's text in it."""

import errno
import http
import logging
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DatabaseError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api_schemas.examples import MANY, ONE
from api_schemas.problems import MEDIA_TYPE, FieldError, Problem
from service.models import ModelError
from service.unexpected import log_unexpected

MOST_FIELD_ERRORS = 100
_MOST_FIELD_NAME = 200
_RETRY_SECONDS = 1
_RETRY_FULL_SECONDS = 60
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DATABASE_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})

_OUR_MISTAKES = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    sqlite3.NotSupportedError,
)
"""What the database says of wrong code; everything else it says of the disk and of locks."""

_log = logging.getLogger("lorad.problems")

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_GENERAL = {
    404: "there is nothing at this address; GET /openapi.json lists what there is",
    405: "this address has no such method; GET /openapi.json lists what there is",
}


class Refusal(HTTPException):
    """An answer that says no: a status, one sentence, and the fields at fault."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Iterable[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Put together what the problem says."""
        super().__init__(status, detail, dict(headers or {}))
        self.errors = list(errors)


def invalid(*errors: tuple[str, str]) -> Refusal:
    """422 for fields given as (name, message)."""
    return Refusal(
        422,
        "the request has fields that can't be accepted; see errors",
        [FieldError(field=field, message=message) for field, message in errors],
    )


def not_now(detail: str, retry_seconds: int) -> Refusal:
    """503, with the time after which to ask again."""
    return Refusal(503, detail, headers={"Retry-After": str(retry_seconds)})


def field_name(location: Iterable[str | int]) -> str:
    """``("body", "examples", 3, "label")`` as ``body.examples[3].label``."""
    parts = list(location)
    if parts[:1] == ["body"] and parts[1:2] in ([ONE], [MANY]):
        del parts[1]  # how the schema tells one example from many is not the client's concern
    name = ""
    for part in parts:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name if len(name) <= _MOST_FIELD_NAME else name[:_MOST_FIELD_NAME] + "…"


def problem_response(
    status: int,
    detail: str,
    errors: Iterable[FieldError] = (),
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response:
    """The response that carries a problem; ``members`` are further ones of its own."""
    problem = Problem(
        title=http.HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        errors=list(errors)[:MOST_FIELD_ERRORS],
    )
    left_out = None if problem.errors else {"errors"}
    return JSONResponse(
        problem.model_dump(exclude=left_out, exclude_none=True) | members,
        status,
        headers=headers,
        media_type=MEDIA_TYPE,
    )


def install(app: FastAPI) -> None:
    """Make the app answer every error with a problem."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(DatabaseError, _database_refused)
    app.add_exception_handler(PoolTimeoutError, _readers_busy)
    app.add_exception_handler(OSError, _disk_refused)
    app.add_exception_handler(ModelError, _model_unusable)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, Refusal):
        return problem_response(
            error.status_code, error.detail, error.errors, error.headers or None
        )
    detail = _GENERAL.get(error.status_code, error.detail)
    headers = error.headers
    if error.status_code == 405:
        headers = {"Allow": ", ".join(_allowed(request))}
    return problem_response(error.status_code, detail, headers=headers)


def _allowed(request: Request) -> list[str]:
    """The methods of the request's address; Starlette names those of one route only."""
    routes = request.app.router.routes
    return [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes
        )
    ]


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [(field_name(one["loc"]), message_of(one)) for one in error.errors()]
    refusal = invalid(*dict.fromkeys(faults))  # FastAPI tells of a parameter as often as it is used
    return problem_response(refusal.status_code, refusal.detail, refusal.errors)


async def _disk_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)
    _log.error("the home folder refused: %s", error.strerror)
    if error.errno in _DISK_FULL:
        return _full()
    return _unavailable(f"nothing was changed, because the home folder refused: {error.strerror}")


async def _model_unusable(request: Request, error: Exception) -> Response:
    return problem_response(409, str(error))


async def _database_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, DatabaseError)
    if isinstance(error.orig, _OUR_MISTAKES):
        raise error
    _log.error("the database refused: %s", error.orig)
    if getattr(error.orig, "sqlite_errorcode", None) in _DATABASE_FULL:
        return _full()
    return _unavailable(f"nothing was changed, because the database refused: {error.orig}")


async def _readers_busy(request: Request, error: Exception) -> Response:
    _log.error("no connection to the database became free in time")
    return _unavailable("nothing was changed, because the database has too many readers")


def _full() -> Response:
    return problem_response(
        507,
        "nothing was changed, because the disk of the home folder is full; free some of its space "
        "and try again",
        headers={"Retry-After": str(_RETRY_FULL_SECONDS)},
    )


def _unavailable(reason: str) -> Response:
    return problem_response(
        503, f"{reason}; try again", headers={"Retry-After": str(_RETRY_SECONDS)}
    )


def message_of(error: Mapping[str, Any]) -> str:
    """What pydantic says of one fault, without what was given."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return str(error["msg"])


class LastResort:
    """ASGI: an error that nothing else handled becomes a 500 problem.

    The log gets the error's kind and the lines it passed, but not its message, which may quote
    what a client sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap the app."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except Exception as error:
            log_unexpected(_log, "a request", error)
            if started or scope["type"] != "http":
                raise ConnectionAbortedError from None
            response = problem_response(
                500, "an error in lorad itself; its kind and place are in the daemon's log"
            )
            await response(scope, receive, send)
