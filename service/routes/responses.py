"""The problems that routes document, and how they are described in OpenAPI."""

from typing import Any

from pydantic import BaseModel

from api_schemas.problems import MEDIA_TYPE, Problem

_SCHEMAS = "#/components/schemas/{model}"

_MEANINGS = {
    400: "The body is not JSON.",
    401: "No token, or one that this daemon doesn't know.",
    403: "Another Host, an Origin, or a request from another site.",
    404: "There is no such thing.",
    408: "The body took too long to arrive.",
    409: "The present state does not allow it.",
    410: "It was there, and its files are gone.",
    412: "The ETag in If-Match is no longer that of the thing.",
    413: "The body is larger than 2 MiB.",
    415: "The body is of no type that this route takes.",
    422: "Fields can't be accepted; `errors` names them.",
    428: "The header If-Match is needed here.",
    429: "Too much for now: `Retry-After` says for how many seconds.",
    502: "The process that predicts has failed.",
    503: "The database refused, and nothing was changed; or nobody can predict now. Try again.",
    507: "The disk is full; nothing was changed.",
}

_ALWAYS = (401, 403, 422, 503, 507)
_WITH_BODY = (400, 408, 413, 415)
_BROUGHT = {"client": 404, "Idempotency-Key": 409, "If-Match": 412}
"""What a parameter may be answered with, whatever the route does."""


def problems(*statuses: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses: those of every route, those of routes with a body, and ``statuses``."""
    every = sorted({*_ALWAYS, *statuses, *(_WITH_BODY if body else ())})
    content = {MEDIA_TYPE: {"schema": schema_of(Problem)}}
    return {status: {"description": _MEANINGS[status], "content": content} for status in every}


def schema_of(model: type[BaseModel]) -> dict[str, str]:
    """Where a schema stands that `add_schemas` puts into the document."""
    return {"$ref": _SCHEMAS.format(model=model.__name__)}


def add_schemas(document: dict[str, Any], *models: type[BaseModel]) -> None:
    """Put these models where `problems` and `schema_of` point to."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in models:
        schema = model.model_json_schema(ref_template=_SCHEMAS)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema


def add_answers_to_parameters(document: dict[str, Any]) -> None:
    """Document what the parameters bring along that many operations share."""
    for operations in document["paths"].values():
        for operation in operations.values():
            names = {parameter["name"] for parameter in operation.get("parameters", ())}
            brought = [status for name, status in _BROUGHT.items() if name in names]
            for status, response in problems(*brought).items():
                operation["responses"].setdefault(str(status), response)


def add_scopes(document: dict[str, Any]) -> None:
    """Say in words what each operation's ``x-scopes`` say."""
    for operations in document["paths"].values():
        for operation in operations.values():
            scopes = " or ".join(f"`{scope}`" for scope in operation.get("x-scopes", []))
            needed = f"Scope: {scopes or 'any'}." if "security" in operation else "Needs no token."
            operation["description"] += f"\n\n{needed}"
