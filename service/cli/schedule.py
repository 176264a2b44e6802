"""`lorad schedule`: when training may proceed, and setting it."""

from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from pydantic import ValidationError

from api_schemas.schedule import DAYS, Window
from service.cli.client import get, put
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import print_json


def _hours(given: list[str]) -> list[str]:
    for text in given:
        _window(text, list(DAYS))
    return given


def _days(given: str | None) -> str | None:
    if given is not None:
        _window("23:00-07:00", given.split(","))
    return given


def _window(hours: str, days: list[str]) -> dict[str, Any]:
    begin, _, end = hours.partition("-")
    try:
        window = Window.model_validate({"days": days, "from": begin, "to": end})
    except ValidationError as error:
        [*_, place] = ("", *error.errors()[0]["loc"])
        if place in ("from", "to"):
            message = f"expected local times as 23:00-07:00, found {hours!r}"
        elif place == "":
            message = f"a window needs a length, found {hours!r}"
        else:
            message = f"expected different ones of {','.join(DAYS)}, found {','.join(days)!r}"
        raise typer.BadParameter(message) from None
    return window.model_dump(by_alias=True)


def schedule(
    hours: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FROM-TO",
            callback=lambda given: _hours(given or []),
            help="Replace all windows by 23:00-07:00 or the like; may be repeated.",
        ),
    ] = None,
    days: Annotated[
        str | None,
        typer.Option(
            "--days",
            callback=_days,
            help="The days on which the windows of --set begin, as mon,tue; default: every day.",
        ),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show the windows of local time in which training may proceed, or set them.

    Windows that differ by day are set over HTTP: PUT /v1/schedule.
    """
    place = home_of(home)
    if hours:
        on = DAYS if days is None else days.split(",")
        windows = [_window(text, list(on)) for text in hours]
        answer = put(place, "/v1/schedule", {"windows": windows})
    elif days is not None:
        raise typer.BadParameter("--days says on which days the windows of --set begin; give both")
    else:
        answer = get(place, "/v1/schedule")
    if json_output:
        print_json(answer)
    else:
        _show(answer)


def _show(answer: dict[str, Any]) -> None:
    typer.echo(f"Training may proceed, by the time of {answer['zone']}:")
    for window in answer["windows"]:
        on = "every day" if len(window["days"]) == len(DAYS) else ", ".join(window["days"])
        typer.echo(f"  {window['from']}-{window['to']} {on}")
    zone, following = answer["zone"], answer["next"]
    if not answer["open"]:
        typer.echo("No window is open now.")
    elif answer["open_until"] is None:
        typer.echo("A window is open always.")
    else:
        typer.echo(f"A window is open now, until {_local(answer['open_until'], zone)}.")
    if following is not None:
        begins, ends = _local(following["from"], zone), _local(following["to"], zone)
        typer.echo(f"The next one: {begins} to {ends}.")
    if answer["pause"]["paused"]:
        until = answer["pause"]["until"]
        end = "" if until is None else f"{_local(until, zone)}, or "
        typer.echo(f"But all training is paused until {end}`lorad resume`.")


def _local(timestamp: str, zone: str) -> str:
    """By the daemon's zone; by this command's where the daemon found no name for its own."""
    moment = datetime.fromisoformat(timestamp)
    try:
        moment = moment.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):
        moment = moment.astimezone()
    return f"{moment:%a %Y-%m-%d %H:%M}"
