"""`lorad pair`: a code on the screen, which an app turns into its token."""

import time
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from api_schemas.scopes import MEANINGS, PAGE, SCOPES
from service.cli.client import delete, get, post
from service.cli.connection import address
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import fail, print_json_line
from service.home import Home

_LOOK_SECONDS = 0.5

_WHY_NOT = {
    "expired": "the code has expired unused; run the command again for a new one",
    "void": "the code is void: five wrong codes were tried (perhaps another app is guessing), or "
    "another one was asked for; run the command again for a new one",
    "withdrawn": "the code was withdrawn",
}


def _known_scopes(given: list[str] | None) -> list[str] | None:
    for scope in given or ():
        if scope not in SCOPES:
            raise typer.BadParameter(f"{scope!r} is none of {', '.join(SCOPES)}")
    return given


def pair(
    name: Annotated[
        str | None, typer.Argument(help="The app's name here: a-z, 0-9, '.', '_', '-'.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help=f"What the app may do; give the option for each of: {', '.join(SCOPES)}.",
            callback=_known_scopes,
        ),
    ] = None,
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="For the page in your browser: NAME is 'page', it may do everything."
        ),
    ] = False,
    examples_per_day: Annotated[
        int | None, typer.Option(min=0, help="Examples it may send a day; 0: no limit.")
    ] = None,
    most_bytes: Annotated[
        int | None, typer.Option(min=0, help="Bytes of text it may keep here; 0: no limit.")
    ] = None,
    most_pending: Annotated[
        int | None, typer.Option(min=0, help="Untrained examples it may have; 0: no limit.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="The app was paired before: its old token stops."),
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Print the code and leave at once.")
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show a code that pairs an app, or with --page your browser: it works once, for two minutes.

    Waits until the code was used; Ctrl-C withdraws it. With --json there is an object a line: the
    code at once and, unless --no-wait was given, what became of it.
    """
    name, scopes = _the_page(name, scope) if page else _an_app(name, scope)
    place = home_of(home)
    quotas = {
        "examples_per_day": examples_per_day,
        "most_bytes": most_bytes,
        "most_pending": most_pending,
    }
    body = {
        "name": name,
        "scopes": list(dict.fromkeys(scopes)),
        "quotas": {key: most or None for key, most in quotas.items() if most is not None},
        "replace": replace or page,
    }
    made = post(place, "/v1/pairing-codes", body)
    made["port"] = address(place).port
    if json_output:
        print_json_line(made)
    else:
        _show(made, page=page)
    if no_wait:
        return
    state = _wait(place, f"/v1/pairing-codes/{quote(name, safe='')}", quiet=json_output)
    if json_output:
        print_json_line({"name": name, "state": state})
    if state != "used":
        fail(_WHY_NOT[state])
    if not json_output:
        typer.echo(f"{name} is paired.")


def _the_page(name: str | None, scope: list[str] | None) -> tuple[str, list[str]]:
    if name is not None or scope:
        raise typer.BadParameter("--page has a name and scopes of its own; give it without them")
    return "page", [*PAGE]


def _an_app(name: str | None, scope: list[str] | None) -> tuple[str, list[str]]:
    if name is None or not scope:
        raise typer.BadParameter("give the app's NAME and one --scope at least, or --page")
    return name, scope


def _show(made: dict[str, Any], *, page: bool) -> None:
    code = f"{made['code'][:4]} {made['code'][4:]}"
    until = datetime.fromisoformat(made["expires_at"]).astimezone().strftime("%H:%M:%S")
    typer.echo(f"\n    {typer.style(code, bold=True)}\n")
    if page:
        typer.echo(f"Open http://127.0.0.1:{made['port']} in your browser and type it by {until};")
        typer.echo("it works once, and logs out every other tab. The page may do everything.")
        return
    typer.echo(f"Type this code into {made['name']} by {until}; it works once.")
    typer.echo(f"If the app asks for the port, it is {made['port']}. The app may then:")
    for scope in made["scopes"]:
        typer.echo(f"  {scope}: {MEANINGS[scope]}")


def _wait(place: Home, path: str, *, quiet: bool) -> str:
    """Wait for the end of the code; which it was: used, expired, void or withdrawn."""
    try:
        if not quiet:
            typer.echo("Waiting for the app … (Ctrl-C withdraws the code)")
        while (state := str(get(place, path)["state"])) == "waiting":
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        state = str(delete(place, path)["state"])
        return "withdrawn" if state == "void" else state
    return state
