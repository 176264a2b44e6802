"""`lorad pause` and `lorad resume`: the user's word over all training."""

from datetime import datetime
from typing import Annotated

import typer

from service.cli.client import delete, get, put
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import print_json, tell
from service.cli.until import until
from service.home import Home
from service.nights.local_zone import local_zone

_NEXT_WINDOW = "window"


def pause(
    end: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="WHEN",
            help="07:00 (the next one), 2026-12-01T08:00, 90m, 2h, or `window`: until the next "
            "window begins; default: until `lorad resume`.",
        ),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Pause all training; the run that is being trained goes on later from where it was."""
    place = home_of(home)
    answer = put(place, "/v1/pause", {"until": _moment(place, end)})
    if json_output:
        print_json(answer)
    elif answer["until"] is None:
        typer.echo("All training is paused until: lorad resume")
    else:
        moment = datetime.fromisoformat(answer["until"]).astimezone(local_zone())
        typer.echo(f"All training is paused until {moment:%a %Y-%m-%d %H:%M}, or: lorad resume")


def _moment(place: Home, end: str | None) -> str | None:
    """When the pause ends, as the API wants it; None: when it is resumed."""
    if end is None:
        return None
    if end == _NEXT_WINDOW:
        following = get(place, "/v1/schedule")["next"]  # none follows one that is open always
        return None if following is None else str(following["from"])
    try:
        return until(end, datetime.now(local_zone())).isoformat()
    except ValueError as error:
        raise typer.BadParameter(f"{error}, or {_NEXT_WINDOW}", param_hint="--until") from None


def resume(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """End the pause of all training."""
    answer = delete(home_of(home), "/v1/pause")
    words = "Training isn't paused: it proceeds when windows and gates allow it."
    tell(answer, words, json_output)
