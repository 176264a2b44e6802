"""Speaking with the daemon of a home as its owner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from service.cli.connection import address, http_client
from service.cli.names import whose
from service.cli.outcome import Exit, fail
from service.home import Home
from storage.owner import OWNER

if TYPE_CHECKING:
    import httpx


def get(home: Home, path: str) -> Any:
    """The JSON that ``GET path`` answers."""
    return _ask(home, "GET", path)


def get_all(home: Home, path: str, noun: str, client: str | None = None) -> list[Any]:
    """Every item of the list at ``path``, page by page; ``client`` is whose, None: the owner's."""
    asked = f"{path}{whose(client, limit=200)}"
    return [item for page in pages(home, asked) for item in page[noun]]


def get_adapters(home: Home, *, everyone: bool) -> list[dict[str, Any]]:
    """The owner's adapters, or everybody's, each with its ``client``."""
    owners = [OWNER]
    if everyone:
        owners = [client["name"] for client in get_all(home, "/v1/clients", "clients")]
    return [
        {"client": owner, **adapter}
        for owner in owners
        for adapter in get_all(home, "/v1/adapters", "adapters", owner)
    ]


def pages(home: Home, path: str) -> Iterator[Any]:
    """Every page of the list at ``path``, which has a query already."""
    cursor = ""
    while True:
        page = get(home, path + cursor)
        yield page
        if page["next"] is None:
            return
        cursor = f"&cursor={page['next']}"


def post(home: Home, path: str, body: Any = None) -> Any:
    """The JSON that ``POST path`` answers to this JSON body, or to none."""
    return _ask(home, "POST", path, body)


def put(home: Home, path: str, body: Any) -> Any:
    """The JSON that ``PUT path`` answers to this JSON body, which replaces whatever is there."""
    return _ask(home, "PUT", path, body, {"If-Match": "*"})


def delete(home: Home, path: str) -> Any:
    """The JSON that ``DELETE path`` answers."""
    return _ask(home, "DELETE", path)


@contextmanager
def session(home: Home) -> Iterator[httpx.Client]:
    """A client for several requests; without a daemon, ends the command."""
    import httpx

    at = address(home)
    try:
        client = http_client(home, at)
    except OSError as error:
        not_answering(home, error)
    with client:
        try:
            yield client
        except httpx.HTTPError as error:
            not_answering(home, error)


def problem_of(response: httpx.Response) -> dict[str, Any]:
    """The problem that an error's body is, or as much of one as can be made of it."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    return problem if isinstance(problem, dict) else {"detail": str(response.status_code)}


def refused(response: httpx.Response) -> None:
    """End the command with what the daemon says against the request, if it does."""
    if not response.is_error:
        return
    response.read()  # of a stream nothing is there yet
    problem = problem_of(response)
    fields = "".join(f"\n  {one['field']} {one['message']}" for one in problem.get("errors", ()))
    detail = problem.get("detail", response.status_code)
    passes = response.status_code == 429 or response.status_code >= 500
    fail(f"the daemon refused: {detail}{fields}", Exit.FAILED if passes else Exit.REFUSED)


def not_answering(home: Home, error: Exception) -> NoReturn:
    """End the command: the connection to the daemon broke."""
    fail(f"the daemon of {home.path} does not answer: {error}", Exit.NOT_REACHABLE)


def _ask(
    home: Home, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Any:
    """What the daemon answers; without a daemon, or with an error, ends the command."""
    with session(home) as client:
        response = client.request(method, path, json=body, headers=headers)
    refused(response)
    try:
        return response.json()
    except ValueError as error:
        not_answering(home, error)
