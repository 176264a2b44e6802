"""`lorad backup` and `lorad restore`: a home in one file, and back."""

import os
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import fail, print_json
from service.durable import whole_file


def backup(
    file: Annotated[Path, typer.Argument(help="Where to; whatever is there is replaced.")],
    with_models: Annotated[
        bool, typer.Option("--with-models", help="The base models' weights too: large.")
    ] = False,
    with_keys: Annotated[
        bool,
        typer.Option(
            "--with-keys",
            help="The owner's token and the server key too: whoever has the file is then you.",
        ),
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Write everything of the home into FILE, readable by you alone, while the daemon runs.

    It holds the examples' texts. What is deleted later stays in it, out of reach of DELETE: keep it
    where only you read it, and no longer than you need it.
    """
    from service.backup.contents import BackupError
    from service.backup.writing import write_backup

    os.umask(0o077)
    place = home_of(home)
    try:
        with whole_file(file) as out:
            made = write_backup(
                place, out, file.absolute().parent, with_models=with_models, with_keys=with_keys
            )
    except BackupError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{file} can't be written: {error.strerror or error}")
    size = file.stat().st_size
    if json_output:
        told = made.model_dump(exclude={"files"})
        print_json({"file": str(file), "bytes": size, "files": len(made.files), **told})
        return
    typer.echo(f"{file}: {size:,} bytes, {len(made.files)} files, schema {made.schema_version}.")
    if not with_keys:
        typer.echo("Without the keys: after a restore the owner's token is new, see --with-keys.")
    if not with_models and made.models:
        names = ", ".join(model.name for model in made.models)
        typer.echo(f"Without the weights of {names}: see --with-models.")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `lorad backup` wrote.")],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="The home has something in it: move that aside first."),
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make the home what a backup holds: all of it, or after any error nothing.

    Everything is checked before anything is touched. An unfinished run begins again.
    """
    from service.backup.contents import BackupError
    from service.backup.reading import restore as restore_home

    os.umask(0o077)
    place = home_of(home)
    try:
        done = restore_home(file, place, replace=replace)
    except BackupError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{file} can't be restored: {error.strerror or error}")
    made, aside = done.manifest, done.aside
    missing = [model for model in made.models if not model.weights]
    if json_output:
        told = {"home": str(place.path), "aside": None if aside is None else str(aside)}
        print_json(told | made.model_dump(exclude={"files"}))
        return
    typer.echo(f"{place.path} is as it was at {made.created_at} (lorad {made.lorad}).")
    if aside is not None:
        typer.echo(f"What was there before lies in {aside}; delete it when you don't need it.")
    for model in missing:
        typer.echo(f"Before training: lorad model add {model.name} SOURCE  ({model.base_hash})")
    if not made.keys:
        typer.echo("The owner's token will be a new one. An app's token still works; if it checks")
        typer.echo("the daemon's proof, pair it again: lorad pair NAME --replace …")
