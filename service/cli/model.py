"""`lorad model`: installing base models, and looking at them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from api_schemas.models import BaseModelInfo
from service.cli.options import HomeOption, JsonOption, settings_with
from service.cli.outcome import Exit, fail, print_json
from service.cli.precision import precision
from service.cli.terminal import console, print_table
from service.home import Home
from service.models import ModelFolder

app = typer.Typer(no_args_is_help=True, help="Install base models, and look at them.")
app.command("precision")(precision)


class WeightFormat(StrEnum):
    """How the frozen weights are kept: the words of trainer/weight_plan.py."""

    INT8 = "int8"
    FP16 = "fp16"
    INT4 = "int4"
    INT4_MIN = "int4_min"
    NATIVE = "native"
    AUTO = "auto"


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
            "int4_min) and the rest in 8; native, what the source has in 4 bits as it is and "
            "the rest in 8; or auto, which measures for some minutes what the gradients bear and "
            "chooses matrix by matrix. Left out, lorad chooses what suits most models.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="With --format auto: at most so many bytes per parameter, like 0.7."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="With --format auto: how far the gradients may move; default 0.2."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="With --format auto: a JSONL file with 'input' and 'label' to measure with, in "
            "place of the demo's invented notifications. All clients share the base model: no "
            "text of a client belongs here.",
        ),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Install a base model. Installing the same one again changes nothing."""
    settings = settings_with(home=home)
    place = Home.at(settings.home)
    place.create()
    given = {"--budget": budget, "--tolerance": tolerance, "--calibration": calibration}
    options = [f"{option}={value}" for option, value in given.items() if value is not None]
    if weight_format is WeightFormat.AUTO:
        options.append(f"--threads={settings.threads}")
        if calibration is None:
            from importlib.resources import files

            from service.demo.rows import BUILT_IN

            options.append(f"--calibration={files('service.demo').joinpath(BUILT_IN)}")
    elif options:
        fail(f"{options[0].partition('=')[0]} goes with --format auto only", Exit.USAGE)
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
            *([f"--format={weight_format.value}"] if weight_format else []),
            *options,
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
    folder = ModelFolder(Home.at(settings_with(home=home).home).models)
    models = [model.info() for model in folder.every()]
    if json_output:
        print_json([model.model_dump() for model in models])
        return
    rows = [
        (
            model.name,
            f"{model.parameters:,}",
            _format_of(model),
            f"{model.bytes_per_parameter:.3f}",
            str(model.context_length),
            model.base_hash,
        )
        for model in models
    ]
    print_table(("name", "parameters", "format", "bytes each", "context", "base hash"), rows)


def _format_of(model: BaseModelInfo) -> str:
    """The format asked for and, where the matrices have others, what they have."""
    if model.formats == [model.format]:
        return model.format
    return f"{model.format}: {', '.join(model.formats)}"


def _watch(lines: IO[str], title: str, *, quiet: bool) -> dict[str, Any]:
    """Show the child's progress; return its last event that is no progress."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    last: dict[str, Any] = {}
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True, quiet=quiet),
    ) as bar:
        tasks: dict[str, TaskID] = {}
        for event in _events(lines):
            if event.get("event") == "progress":
                phase = event["phase"]
                if phase not in tasks:
                    tasks[phase] = bar.add_task(f"{title}: {phase}", total=None)
                bar.update(tasks[phase], completed=event["done"], total=event["total"])
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
