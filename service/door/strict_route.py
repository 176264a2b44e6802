"""Routes whose bodies are JSON and say so."""

from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from api_schemas.problems import FieldError
from service.context import Needs
from service.door import strict_json
from service.door.problems import Refusal, field_name
from service.door.strict_json import MOST_VALUES

JSON = "application/json"


class StrictRequest(Request):
    """A request whose ``json()`` refuses everything that isn't strict JSON."""

    async def json(self) -> Any:
        """The body's value.

        Raises:
            Refusal: 400 where the body isn't JSON, 422 where a place in it can't be accepted.
        """
        return value_of(await self.body())


class StrictRoute(APIRoute):
    """A route that takes its body, where it has one, as ``application/json`` only.

    What scopes it needs is told in OpenAPI as ``x-scopes``.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Bind as FastAPI does."""
        super().__init__(path, endpoint, **options)
        for dependency in self.dependencies:
            if isinstance(dependency.dependency, Needs):
                scopes = list(dependency.dependency.any_of)
                self.openapi_extra = (self.openapi_extra or {}) | {"x-scopes": scopes}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind the checks of this class."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if self.body_field is None:
                return await handle(request)
            require_content(request, JSON)
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


def value_of(body: bytes) -> Any:
    """The value of a JSON body.

    Raises:
        Refusal: 400 where the body isn't JSON, 422 where a place in it can't be accepted.
    """
    try:
        return strict_json.loads(body, most_values=MOST_VALUES)
    except strict_json.JsonError as error:
        if not error.places:
            raise Refusal(400, str(error)) from None
        errors = [
            FieldError(field=field_name(("body", *place)), message=message)
            for place, message in error.places
        ]
        raise Refusal(422, str(error), errors) from None


def require_content(request: Request, *types: str) -> str:
    """The media type of the body, which must be one of ``types``: the first where it is empty.

    Raises:
        Refusal: 415 if it is another one, not UTF-8, or compressed.
    """
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return types[0]
    content = Message()
    content["content-type"] = headers.get("content-type", "")
    charset = content.get_content_charset("utf-8")
    if content.get_content_type() not in types or charset not in ("utf-8", "utf8"):
        raise Refusal(
            415,
            f"expected the header 'Content-Type: {' or '.join(types)}' (UTF-8)",
            headers={"Accept": ", ".join(types)},
        )
    if headers.get("content-encoding", "identity") != "identity":
        raise Refusal(
            415, "expected a body without Content-Encoding", headers={"Accept-Encoding": "identity"}
        )
    return content.get_content_type()
