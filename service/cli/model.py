"""`lorad model`: installing base models, and listing them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import IO, Annotated, Any

import typer

from api_schemas.models import BaseModelInfo
from service.cli.options import HomeOption, JsonOption, settings_with
from service.cli.outcome import fail, print_json
from service.home import Home
from service.models import ModelFolder

app = typer.Typer(no_args_is_help=True, help="Install base models, and list them.")


class WeightFormat(StrEnum):
    """How the frozen weights are kept: the words of trainer/weight_plan.py."""

    INT8 = "int8"
    FP16 = "fp16"
    INT4 = "int4"
    INT4_MIN = "int4_min"
    NATIVE = "native"


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The name that adapters will use.")],
    source: Annotated[
        str, typer.Argument(help="A Hugging Face folder, a GGUF file, or an installed package.")
    ],
    weight_format: Annotated[
        WeightFormat | None,
        typer.Option(
            "--format",
            help="How the frozen weights are kept: in 8 or 16 bits; the linears in 4 (int4, better "
            "int4_min) and the rest in 8; or native, what the source has in 4 bits as it is and "
            "the rest in 8. Left out, lorad chooses what suits most models.",
        ),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Install a base model. Installing the same one again changes nothing."""
    place = Home.at(settings_with(home=home).home)
    place.create()
    with subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "trainer.add_model",
            "--home",
            str(place.path),
            "--name",
            name,
            "--source",
            source,
            *(["--format", weight_format.value] if weight_format else []),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as child:
        assert child.stdout is not None
        last = _watch(child.stdout, f"adding {name}", quiet=json_output)
    if last.get("event") != "added":
        reason = last.get("message") or f"python -m trainer.add_model ended with {child.returncode}"
        fail(f"{name} was not added: {reason}")
    if json_output:
        print_json(last)
        return
    manifest = last["manifest"]
    done = "was there already" if last.get("unchanged") else "added"
    each = manifest["weights"]["bytes"] / manifest["parameters"]
    typer.echo(
        f"{name} {done}: {manifest['parameters']:,} parameters of {each:.3f} bytes "
        f"({manifest['format']}), {manifest['base_hash']}"
    )


@app.command("list")
def list_models(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """List the installed base models."""
    from rich.console import Console
    from rich.table import Table

    folder = ModelFolder(Home.at(settings_with(home=home).home).models)
    models = [model.info() for model in folder.every()]
    if json_output:
        print_json([model.model_dump() for model in models])
        return
    table = Table("name", "parameters", "format", "bytes each", "context", "base hash")
    for model in models:
        table.add_row(
            model.name,
            f"{model.parameters:,}",
            _format_of(model),
            f"{model.bytes_per_parameter:.3f}",
            str(model.context_length),
            model.base_hash,
        )
    Console().print(table)


def _format_of(model: BaseModelInfo) -> str:
    """The format asked for and, where the matrices have others, what they have."""
    if model.formats == [model.format]:
        return model.format
    return f"{model.format}: {', '.join(model.formats)}"


def _watch(lines: IO[str], title: str, *, quiet: bool) -> dict[str, Any]:
    """Show the child's progress; return its last event that is no progress."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    last: dict[str, Any] = {}
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True, quiet=quiet),
    ) as bar:
        task = bar.add_task(title, total=None)
        for event in _events(lines):
            if event.get("event") == "progress":
                bar.update(task, completed=event["done"], total=event["total"])
            else:
                last = event
    return last


def _events(lines: IO[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
