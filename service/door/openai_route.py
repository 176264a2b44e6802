"""Errors that OpenAI's clients understand: problems (RFC 9457) with the member ``error``.

Those clients tell their exceptions apart by the status, and take ``error`` for the rest. Where a
parameter can't be accepted they expect 400, not 422.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError

from api_schemas.openai import ErrorInside
from api_schemas.problems import FieldError
from service.door.problems import Refusal, field_name, message_of, problem_response
from service.door.strict_route import StrictRoute

_BODY = "body."
_UNSUPPORTED = "is not supported"
_ONE_VALUE = tuple((name,) for name in ("n", "logprobs", "frequency_penalty", "presence_penalty"))
"""Parameters of which only the value that changes nothing is taken."""


class OpenAIRoute(StrictRoute):
    """A route of OpenAI's API."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of `StrictRoute`, with its refusals in both tongues."""
        handle = super().get_route_handler()

        async def translated(request: Request) -> Response:
            try:
                return await handle(request)
            except Refusal as refusal:
                return error_response(refusal)
            except RequestValidationError as error:
                return error_response(_refusal(error))

        return translated


def error_inside(refusal: Refusal) -> ErrorInside:
    """A refusal in OpenAI's words."""
    first = refusal.errors[0] if refusal.errors else None
    param = None if first is None else first.field.removeprefix(_BODY)
    message = refusal.detail if first is None else f"{param} {first.message}"
    ours = refusal.status_code >= 500
    return ErrorInside(
        message=message,
        type="server_error" if ours else "invalid_request_error",
        param=param,
        code=_code(refusal),
    )


def error_response(refusal: Refusal) -> Response:
    """The answer that carries a refusal in both tongues."""
    status = 400 if refusal.status_code == 422 else refusal.status_code
    return problem_response(
        status,
        refusal.detail,
        refusal.errors,
        refusal.headers or None,
        error=error_inside(refusal).model_dump(),
    )


def _code(refusal: Refusal) -> str | None:
    if refusal.status_code == 404:
        return "model_not_found"
    if refusal.errors and refusal.errors[0].message.startswith(_UNSUPPORTED):
        return "unsupported_parameter"
    return None


def _refusal(error: RequestValidationError) -> Refusal:
    faults = dict.fromkeys((field_name(one["loc"]), _message(one)) for one in error.errors())
    (name, message), *_ = faults
    return Refusal(
        422,
        f"{name.removeprefix(_BODY)} {message}",
        [FieldError(field=field, message=text) for field, text in faults],
    )


def _message(error: dict[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return f"{_UNSUPPORTED} by lorad: leave it out"
    if error["loc"][1:] in _ONE_VALUE:
        return f"{_UNSUPPORTED} by lorad but for its default: leave it out"
    return message_of(error)
