"""An adapter as a person names it: ``name`` is the owner's own, ``client/name`` an app's."""

from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from service.home import Home
from storage.owner import OWNER

_COMPLETION_SECONDS = 1.0


def adapter_path(name: str, rest: str = "", **query: str | int) -> str:
    """The route of an adapter, or with ``rest`` one below it, with whose it is and ``query``."""
    client, adapter = parted(name)
    return f"/v1/adapters/{quote(adapter, safe='')}{rest}{whose(client, **query)}"


def run_path(client: str | None, run_id: int, rest: str = "") -> str:
    """The route of a run, or with ``rest`` one below it; ``client`` is whose, None: the owner's."""
    return f"/v1/runs/{run_id}{rest}{whose(client)}"


def whose(client: str | None, **query: str | int) -> str:
    """The query that makes a request be about that client's things; None: the owner's."""
    asked = urlencode(({} if client is None else {"client": client}) | query)
    return f"?{asked}" if asked else ""


def parted(name: str) -> tuple[str | None, str]:
    """The client (None: the owner) and the adapter in ``client/name``."""
    client, slash, adapter = name.rpartition("/")
    return (client if slash else None), adapter


def named(client: str, adapter: str) -> str:
    """An adapter as a person names it."""
    return adapter if client == OWNER else f"{client}/{adapter}"


def complete_adapter(context: typer.Context, incomplete: str) -> list[str]:
    """For the shell: the adapters that begin so, the apps' too; none if the daemon is silent."""
    import httpx

    from service.cli.connection import find, http_client
    from service.settings import Settings

    home = context.params.get("home")
    try:
        place = Home.at(home or Settings().home)
        at = find(place)
        if at is None:
            return []
        with http_client(place, at, _COMPLETION_SECONDS) as http:
            clients = http.get("/v1/clients?limit=200").json()["clients"]
            found = []
            for client in clients:
                owner = client["name"]
                page = http.get(f"/v1/adapters{whose(owner, limit=200)}").json()
                found += [named(owner, adapter["name"]) for adapter in page["adapters"]]
    except (OSError, ValueError, KeyError, TypeError, httpx.HTTPError):
        return []  # a completion says nothing rather than something in a person's way
    return [name for name in found if name.startswith(incomplete)]


AdapterArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="An adapter of yours, or an app's: client/name.",
        autocompletion=complete_adapter,
    ),
]
