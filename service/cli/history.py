"""`lorad history`: what happened, newest first."""

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from service.cli.client import get
from service.cli.names import parted
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import print_json
from service.home import Home
from storage.owner import OWNER

_A_PAGE = 200
_SHOWN = 30


def history(
    name: Annotated[
        str | None,
        typer.Argument(help="Of this adapter only: its name, or client/name for another's."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Of this kind only, as run-failed; may be repeated."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The most to show.")] = _SHOWN,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say what happened to all adapters and to the daemon, the newest first."""
    place = home_of(home)
    found, older = _entries(place, _asked(name, kind or []), limit)
    if json_output:
        print_json(found)
        return
    for entry in found:
        typer.echo(_words(entry))
    if not found:
        typer.echo("nothing of that has happened" + ("; see: lorad adapters" if name else ""))
    elif older:
        typer.echo(f"there are older ones; --limit {limit * 2} shows more")


def _asked(name: str | None, kinds: list[str]) -> list[tuple[str, str]]:
    asked = [("kind", kind) for kind in kinds]
    if name is None:
        return [*asked, ("everyone", "true")]
    client, adapter = parted(name)
    return [*asked, ("adapter", adapter), *([] if client is None else [("client", client)])]


def _entries(
    home: Home, asked: list[tuple[str, str]], limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """Up to ``limit`` entries, page by page, and whether there are older ones."""
    found: list[dict[str, Any]] = []
    cursor: list[tuple[str, str]] = []
    while True:
        size = str(min(_A_PAGE, limit - len(found)))
        page = get(home, f"/v1/history?{urlencode([*asked, ('limit', size), *cursor])}")
        found += page["entries"]
        if page["next"] is None or len(found) >= limit:
            return found, page["next"] is not None
        cursor = [("cursor", page["next"])]


def _words(entry: dict[str, Any]) -> str:
    """When, by this device's clock; what; about what."""
    at = datetime.fromisoformat(entry["at"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    client = None if entry["client"] == OWNER else entry["client"]
    about = "/".join(part for part in (client, entry["adapter"]) if part is not None)
    return f"{at}  {entry['kind']:<20}  {about}{': ' if about else ''}{entry['message']}"
