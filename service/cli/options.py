"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from service.cli.outcome import Exit, fail
from service.settings import Settings

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="The home folder; default: $LORAD_HOME or ~/.local/share/lorad."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def settings_with(**given: Any) -> Settings:
    """The settings, with the options that were given on the command line over the environment."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(map(str, first["loc"]))
        fail(f"--{name} or LORAD_{name.upper()}: {first['msg']}", Exit.USAGE)
