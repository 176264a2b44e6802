"""Options that several commands have."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from service.cli.outcome import Exit, fail
from service.gates.limits import PREFIX, Limits
from service.home import Home
from service.settings import Settings

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="The home folder; default: $LORAD_HOME or ~/.local/share/lorad."),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def settings_with(**given: Any) -> Settings:
    """The settings, with the options that were given on the command line over the environment."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(map(str, first["loc"]))
        fail(f"--{name} or LORAD_{name.upper()}: {first['msg']}", Exit.USAGE)


def home_of(given: Path | None) -> Home:
    """The home that ``--home`` names, or the environment."""
    return Home.at(settings_with(home=given).home)


def gate_limits() -> Limits:
    """The limits of the gates, from the environment; none that is misspelt counts as given."""
    known = {f"{PREFIX}{name.upper()}" for name in Limits.model_fields}
    for name in sorted(os.environ):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            fail(f"{name} is no limit of a gate; there are {', '.join(sorted(known))}", Exit.USAGE)
    try:
        return Limits()
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:  # of several limits, which the message names
            fail(first["msg"].removeprefix("Value error, "), Exit.USAGE)
        name = PREFIX + "_".join(map(str, first["loc"])).upper()
        fail(f"{name} is {first['input']}: {first['msg']}", Exit.USAGE)
