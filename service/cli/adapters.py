"""`lorad adapters`: the adapters of the running daemon, making one, and deleting one."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from service.cli.client import delete, get, get_adapters, post
from service.cli.names import AdapterArgument, adapter_path, named, parted, whose
from service.cli.options import HomeOption, JsonOption, YesOption, home_of
from service.cli.outcome import print_json, tell, tell_deleted
from service.cli.terminal import print_table

app = typer.Typer(help="List the adapters; create, show or delete one.")

_TITLES = (
    "adapter",
    "base model",
    "rank",
    "layers",
    "examples",
    "held out",
    "new",
    "active version",
)


class TooLong(StrEnum):
    """What happens to an example that is too long: the words of api_schemas/adapters.py."""

    REFUSE = "refuse"
    CUT = "cut"


@app.callback(invoke_without_command=True)
def adapters(
    context: typer.Context, home: HomeOption = None, json_output: JsonOption = False
) -> None:
    """List the owner's adapters, or with a command below do something with one."""
    if context.invoked_subcommand is None:
        list_adapters(home, json_output)


@app.command("list")
def list_adapters(
    home: HomeOption = None,
    json_output: JsonOption = False,
    everyone: Annotated[bool, typer.Option("--everyone", help="The apps' adapters too.")] = False,
) -> None:
    """List the adapters with their examples and active versions."""
    found = get_adapters(home_of(home), everyone=everyone)
    if json_output:
        print_json(found)
        return
    rows = []
    for adapter in found:
        counts, active = adapter["examples"], adapter["active_version"]
        row = (
            named(adapter["client"], adapter["name"]),
            adapter["base_model"],
            str(adapter["rank"]),
            _layers(adapter),
            str(counts["train"]),
            str(counts["holdout"]),
            str(counts["pending"]),
            "-" if active is None else str(active["number"]),
        )
        rows.append(row)
    print_table(_TITLES, rows)


@app.command()
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Its name; for an app of yours: client/name.")
    ],
    model: Annotated[
        str | None, typer.Option("--model", help="The base model; smollm2-135m.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="A label; give all of them. Without any: free text."),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=1, max=64, help="Of the LoRA; 8.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Of the LoRA; 16.")] = None,
    top_layers: Annotated[
        int | None, typer.Option(min=1, help="Only so many layers from the top; default: all.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=16, help="Of an example with its label; 1024.")
    ] = None,
    too_long: Annotated[
        TooLong | None, typer.Option(help="Refuse longer examples, or cut them.")
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Create an adapter. Base model, rank, alpha and layers are fixed from then on."""
    client, adapter = parted(name)
    given = {
        "base_model": model,
        "labels": label or None,
        "rank": rank,
        "alpha": alpha,
        "top_layers": top_layers,
        "max_tokens": max_tokens,
        "too_long": None if too_long is None else too_long.value,
    }
    body: dict[str, Any] = {"name": adapter}
    body |= {key: value for key, value in given.items() if value is not None}
    made = post(home_of(home), f"/v1/adapters{whose(client)}", body)
    tell(made, f"{name} is created. Next: lorad examples import {name} FILE", json_output)


@app.command()
def show(name: AdapterArgument, home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Show an adapter: settings, examples, run, active version, and why it isn't training."""
    found = get(home_of(home), adapter_path(name))
    if json_output:
        print_json(found)
        return
    for title, words in _facts(found):
        typer.echo(f"{title + ':':<16}{words}")


@app.command("delete")
def delete_adapter(
    name: AdapterArgument,
    yes: YesOption = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Delete an adapter with its examples, runs and versions."""
    place = home_of(home)
    if not yes:
        counts = get(place, adapter_path(name))["examples"]
        kept = counts["train"] + counts["holdout"]
        question = f"Delete {name} with its {kept} examples, its runs and its versions?"
        typer.confirm(question, abort=True, err=True)
    tell_deleted(name, delete(place, adapter_path(name)), json_output)


def _layers(adapter: dict[str, Any]) -> str:
    return "all" if adapter["top_layers"] is None else f"top {adapter['top_layers']}"


def _facts(adapter: dict[str, Any]) -> list[tuple[str, str]]:
    counts, run, active = adapter["examples"], adapter["current_run"], adapter["active_version"]
    labels, retention = adapter["labels"], adapter["retention"]
    facts = [
        ("adapter", adapter["name"]),
        ("base model", f"{adapter['base_model']}, {adapter['base_hash']}"),
        ("LoRA", f"rank {adapter['rank']}, alpha {adapter['alpha']:g}, layers {_layers(adapter)}"),
        ("labels", "any text" if labels is None else ", ".join(labels)),
        ("longest example", f"{adapter['max_tokens']} tokens; longer: {adapter['too_long']}"),
        (
            "examples",
            f"{counts['train']} to learn from, {counts['holdout']} held out, "
            f"{counts['pending']} new, {counts['bytes']:,} bytes",
        ),
    ]
    if retention["keep_days"] is not None or retention["max_examples"] is not None:
        bounds = (("days", retention["keep_days"]), ("examples", retention["max_examples"]))
        kept = " and ".join(f"{bound} {noun}" for noun, bound in bounds if bound is not None)
        facts.append(("kept", f"at most {kept}"))
    if run is not None:
        facts.append(("run", f"{run['id']}, {run['status']}"))
    if active is not None:
        facts.append(("active version", f"{active['number']}: {active['verdict_reason']}"))
    facts.append(("training", adapter["not_training_because"] or "now"))
    return facts
