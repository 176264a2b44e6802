"""`lorad versions` and `lorad export`: the results of trainings, and taking one along."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.client import delete, get, pages, post, refused, session
from service.cli.names import AdapterArgument, adapter_path
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import Exit, fail, print_json, tell
from service.cli.terminal import print_table
from service.cli.version_words import measured, number, share
from service.durable import whole_file
from service.home import Home

_SHOWN = 20


class AdapterFormat(StrEnum):
    """The formats in which a version can be taken along."""

    PEFT = "peft"
    GGUF = "gguf"


def versions(
    name: AdapterArgument,
    version: Annotated[
        int | None, typer.Argument(metavar="NUMBER", help="Show this one with its measurements.")
    ] = None,
    remove: Annotated[
        int | None, typer.Option("--delete", min=1, help="Delete this version and its files.")
    ] = None,
    activate: Annotated[
        int | None,
        typer.Option("--activate", min=1, help="Make this the active version, as your decision."),
    ] = None,
    deactivate: Annotated[
        int | None,
        typer.Option("--deactivate", min=1, help="Have no active version, if this one is it."),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """List an adapter's versions, newest first, or show, activate, deactivate or delete one."""
    place = home_of(home)
    if sum(one is not None for one in (remove, version, activate, deactivate)) > 1:
        fail("expected one version to do one thing with, found several", Exit.USAGE)
    if activate is not None:
        answer = post(place, adapter_path(name, f"/versions/{activate}/activate"))
        tell(answer, f"version {activate} of {name} is active now.", json_output)
    elif deactivate is not None:
        answer = post(place, adapter_path(name, f"/versions/{deactivate}/deactivate"))
        tell(answer, f"version {deactivate} of {name} isn't active now.", json_output)
    elif remove is not None:
        answer = delete(place, adapter_path(name, f"/versions/{remove}"))
        tell(answer, f"version {remove} of {name} is deleted with its files.", json_output)
    elif version is not None:
        found = get(place, adapter_path(name, f"/versions/{version}"))
        if json_output:
            print_json(found)
        else:
            _show(found)
    else:
        _list(place, name, json_output)


def export(
    name: AdapterArgument,
    file: Annotated[Path, typer.Argument(help="Where to; whatever is there is replaced.")],
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Default: the active version.")
    ] = None,
    adapter_format: Annotated[
        AdapterFormat, typer.Option("--format", help="peft: a zip for PEFT; gguf: for llama.cpp.")
    ] = AdapterFormat.PEFT,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Write a version's files to FILE, readable by you alone."""
    place = home_of(home)
    if version is None:
        active = get(place, adapter_path(name))["active_version"]
        if active is None:
            fail(f"{name} has no active version; --version names another one", Exit.REFUSED)
        version = int(active["number"])
    path = adapter_path(name, f"/versions/{version}/download", format=adapter_format.value)
    size = 0
    with session(place) as http, http.stream("GET", path) as response:
        refused(response)
        try:
            with whole_file(file) as out:
                for part in response.iter_bytes():
                    size += out.write(part)
        except OSError as error:
            fail(f"{file} can't be written: {error.strerror}")
    told = {"version": version, "format": adapter_format.value, "file": str(file), "bytes": size}
    tell(told, f"version {version} of {name} is in {file} ({size:,} bytes).", json_output)


def _list(home: Home, name: str, json_output: bool) -> None:
    listed = pages(home, adapter_path(name, "/versions", limit=100))
    found = [one for page in listed for one in page["versions"]]
    if json_output:
        print_json({"versions": found})
        return
    if not found:
        typer.echo(f"{name} has no version yet; lorad why {name} says what it waits for")
        return
    rows = [_row(one) for one in found[:_SHOWN]]
    titles = ("version", "", "from", "held out", "right before", "after", "loss before", "after")
    print_table(titles, rows)
    if len(found) > _SHOWN:
        typer.echo(f"and {len(found) - _SHOWN} older ones; --json names all")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    metrics = one["metrics"]
    before, after = metrics["before"], metrics["after"]
    loss = "label_nll" if after.get("label_nll") is not None else "loss"
    return (
        str(one["number"]),
        "active" if one["active"] else one["verdict"],
        one["created_at"][:10],
        str(metrics["holdout"]),
        share(before.get("accuracy")),
        share(after.get("accuracy")),
        number(before.get(loss)),
        number(after.get(loss)),
    )


def _show(one: dict[str, Any]) -> None:
    active = ", active" if one["active"] else ""
    source = "imported" if one["run"] is None else f"of run {one['run']}"
    typer.echo(f"version {one['number']}, {source}{active}: {one['verdict']}")
    typer.echo(f"  {one['verdict_reason']}")
    if one["activated_by"] is not None:
        typer.echo(f"  activated by {one['activated_by']} at {one['activated_at']}")
    if one["warm_start"] is not None:
        typer.echo(f"  began with version {one['warm_start']}")
    if one["files_gone"]:
        typer.echo("  its files are gone from the home folder")
    for line in measured(one["metrics"]):
        typer.echo(f"  {line}")
    if one["exact_resume"] is False:
        typer.echo(f"  not the very same run throughout: {one['exact_resume_reason']}")
    if one["seen_deleted"]:
        typer.echo(f"  {one['seen_deleted']} examples that it has seen are deleted since")
    typer.echo(f"  base model {one['base_hash']}")
