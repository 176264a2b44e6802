"""`lorad examples`: bringing a file of examples in, and writing one out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from service.cli.client import pages, session
from service.cli.example_file import ExampleFileError, format_of, read_lines
from service.cli.example_import import Imported, Importer
from service.cli.names import AdapterArgument, adapter_path
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import Exit, fail, print_json, tell
from service.cli.terminal import console
from service.durable import whole_file

app = typer.Typer(no_args_is_help=True, help="Import examples from a file, or export them.")

_SHOWN = 20


class FileFormat(StrEnum):
    """How the lines of a file of examples are written."""

    JSONL = "jsonl"
    TSV = "tsv"
    CSV = "csv"


@app.command("import")
def import_examples(
    name: AdapterArgument,
    file: Annotated[str, typer.Argument(help="JSONL, TSV or CSV; '-' is standard input.")],
    file_format: Annotated[
        FileFormat | None,
        typer.Option("--format", help="Default: by the file's ending, else jsonl."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Also what was imported in the last 24 hours, a second time."),
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Hand in a file's examples: input, label and perhaps split (train, holdout), external_id.

    What an import that was interrupted had sent isn't kept twice when it is repeated. Lines that
    are refused are named; the others are kept. Exit code 1 if any was refused.
    """
    import httpx

    place = home_of(home)
    path = adapter_path(name, "/examples")
    form = file_format.value if file_format else format_of(file)
    with ExitStack() as stack:
        source = _opened(file, stack)
        http = stack.enter_context(session(place))
        key = place.token.read_bytes() + (os.urandom(32) if again else b"")
        done = stack.enter_context(_progress(source, quiet=json_output))
        importer = Importer(http, path, key, done)
        try:
            importer.send(read_lines(source, form))
        except (ExampleFileError, OSError) as error:
            fail(f"{file}: {error}; {_count(importer.result)}")
        except httpx.HTTPError as error:
            broke = f"the connection broke ({type(error).__name__})"
            fail(f"{broke}: {_count(importer.result)}; repeat it to go on", Exit.NOT_REACHABLE)
        except KeyboardInterrupt:
            typer.echo(f"stopped: {_count(importer.result)}; repeat it to go on", err=True)
            raise typer.Exit(Exit.INTERRUPTED) from None
    _tell(importer.result, json_output)


@app.command("export")
def export_examples(
    name: AdapterArgument,
    file: Annotated[
        Path | None, typer.Argument(help="Where to; without it, standard output.")
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Write the adapter's examples as JSONL, which `lorad examples import` reads.

    Expired ones, whose text is erased, are left out. The file is readable by you alone.
    """
    found = _kept(pages(home_of(home), adapter_path(name, "/examples", limit=1000)))
    if file is None:
        if json_output:
            print_json({"examples": list(found)})
        else:
            for example in found:
                typer.echo(json.dumps(example, ensure_ascii=False))
        return
    count = 0
    try:
        with whole_file(file) as out:
            for example in found:
                out.write(json.dumps(example, ensure_ascii=False).encode() + b"\n")
                count += 1
    except OSError as error:
        fail(f"{file} can't be written: {error.strerror}")
    told = {"examples": count, "file": str(file)}
    tell(told, f"{count} examples are in {file}, readable by you alone.", json_output)


def _opened(file: str, stack: ExitStack) -> IO[bytes]:
    if file == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(file).open("rb"))
    except OSError as error:
        fail(f"expected a file of examples at {file}, found: {error.strerror}")


@contextmanager
def _progress(source: IO[bytes], *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar over the file's bytes, with the lines that are done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    total = None
    if source is not sys.stdin.buffer:
        total = os.fstat(source.fileno()).st_size or None
    with Progress(
        TextColumn("{task.fields[lines]:,} examples"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True, quiet=quiet or not sys.stderr.isatty()),
    ) as bar:
        task = bar.add_task("", total=total, lines=0)
        lines = 0

        def done(count: int) -> None:
            nonlocal lines
            lines += count
            read = source.tell() if total else None
            bar.update(task, lines=lines, completed=read)

        yield done


def _tell(result: Imported, json_output: bool) -> None:
    result.refused.sort()
    if json_output:
        print_json(
            {
                "accepted": result.accepted,
                "accepted_before": result.before,
                "cut": result.cut,
                "refused": [{"line": line, "reason": why} for line, why in result.refused],
            }
        )
    else:
        typer.echo(f"{_count(result)}.")
        if result.before:
            typer.echo("Accepted before: within the last 24 hours; --again repeats those.")
        if result.cut:
            typer.echo(f"{result.cut} are too long: training cuts the end of their input.")
        for line, why in result.refused[:_SHOWN]:
            typer.echo(f"line {line}: {why}", err=True)
        if len(result.refused) > _SHOWN:
            typer.echo(f"and {len(result.refused) - _SHOWN} more; --json names all", err=True)
    if result.refused:
        raise typer.Exit(Exit.FAILED)


def _count(result: Imported) -> str:
    before = f", {result.before} were accepted before" if result.before else ""
    lines = f", {len(result.refused)} lines are refused" if result.refused else ""
    return f"{result.accepted} examples are accepted{before}{lines}"


def _kept(found: Iterator[Any]) -> Iterator[dict[str, Any]]:
    return (one for page in found for one in page["examples"] if one["input"] is not None)
