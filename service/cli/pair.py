"""`lorad pair`: a code on the screen, which an app turns into its token."""

import time
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from api_schemas.scopes import MEANINGS, SCOPES
from service.cli.client import delete, get, port, post
from service.cli.options import HomeOption, JsonOption, settings_with
from service.cli.outcome import fail, print_json
from service.home import Home

_LOOK_SECONDS = 0.5

_WHY_NOT = {
    "expired": "the code has expired unused; run the command again for a new one",
    "void": "the code is void: five wrong codes were tried (perhaps another app is guessing), or "
    "another one was asked for; run the command again for a new one",
    "withdrawn": "the code was withdrawn",
}


def _known_scopes(given: list[str]) -> list[str]:
    for scope in given:
        if scope not in SCOPES:
            raise typer.BadParameter(f"{scope!r} is none of {', '.join(SCOPES)}")
    return given


def pair(
    name: Annotated[str, typer.Argument(help="The app's name here: a-z, 0-9, '.', '_', '-'.")],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            help=f"What the app may do; give the option for each of: {', '.join(SCOPES)}.",
            callback=_known_scopes,
        ),
    ],
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
    """Show a code that pairs an app: it works once, for two minutes.

    Waits until the app has used it; Ctrl-C withdraws it.
    """
    place = Home.at(settings_with(home=home).home)
    quotas = {
        "examples_per_day": examples_per_day,
        "most_bytes": most_bytes,
        "most_pending": most_pending,
    }
    body = {
        "name": name,
        "scopes": list(dict.fromkeys(scope)),
        "quotas": {key: most or None for key, most in quotas.items() if most is not None},
        "replace": replace,
    }
    made = post(place, "/v1/pairing-codes", body)
    made["port"] = port(place)
    if json_output:
        print_json(made)
    else:
        _show(made)
    if no_wait:
        return
    state = _wait(place, f"/v1/pairing-codes/{quote(name, safe='')}", quiet=json_output)
    if json_output:
        print_json({"name": name, "state": state})
    if state != "used":
        fail(_WHY_NOT[state])
    if not json_output:
        typer.echo(f"{name} is paired.")


def _show(made: dict[str, Any]) -> None:
    code = f"{made['code'][:4]} {made['code'][4:]}"
    until = datetime.fromisoformat(made["expires_at"]).astimezone().strftime("%H:%M:%S")
    typer.echo(f"\n    {typer.style(code, bold=True)}\n")
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
