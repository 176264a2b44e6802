"""`lorad pause` and `lorad resume`: the user's word over all training."""

from datetime import datetime
from typing import Annotated

import typer

from service.cli.client import delete, put
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import print_json, tell
from service.cli.until import until
from service.nights.local_zone import local_zone


def _moment(text: str) -> datetime:
    try:
        return until(text, datetime.now(local_zone()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def pause(
    end: Annotated[
        datetime | None,
        typer.Option(
            "--until",
            metavar="WHEN",
            parser=_moment,
            help="07:00 (the next one), 2026-12-01T08:00, 90m, 2h; default: until `lorad resume`.",
        ),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Pause all training; the run that is being trained goes on later from where it was."""
    body = {"until": None if end is None else end.isoformat()}
    answer = put(home_of(home), "/v1/pause", body)
    if json_output:
        print_json(answer)
    elif answer["until"] is None:
        typer.echo("All training is paused until: lorad resume")
    else:
        moment = datetime.fromisoformat(answer["until"]).astimezone(local_zone())
        typer.echo(f"All training is paused until {moment:%a %Y-%m-%d %H:%M}, or: lorad resume")


def resume(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """End the pause of all training."""
    answer = delete(home_of(home), "/v1/pause")
    words = "Training isn't paused: it proceeds when windows and gates allow it."
    tell(answer, words, json_output)
