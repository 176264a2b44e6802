"""`lorad train`: asking for a training."""

from typing import Annotated, Any

import typer

from service.cli.client import post
from service.cli.names import AdapterArgument, adapter_path, parted
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import print_json
from service.cli.watch import watch_run


def train(
    name: AdapterArgument,
    window: Annotated[
        bool,
        typer.Option(
            "--window/--now", help="Wait for the next window, or begin once the gates allow it."
        ),
    ] = False,
    override: Annotated[
        bool,
        typer.Option("--override", help="Pass a missing charger, a low charge and mild warmth."),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="And watch it until it ends.")] = False,
    epochs: Annotated[float | None, typer.Option(help="Passes over the examples.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="In place of epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Examples a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The peak.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of order and start values.")] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Ask for a training of the adapter. Options left out are the adapter's own."""
    place = home_of(home)
    given = {
        "epochs": epochs,
        "steps": steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    training = {key: value for key, value in given.items() if value is not None}
    body: dict[str, Any] = {"when": "window" if window else "now", "override": override}
    if training:
        body["training"] = training
    run = post(place, adapter_path(name, "/runs"), body)
    if json_output and not watch:
        print_json(run)
        return
    if not json_output:
        begins = "in the next window" if window else "as soon as the gates allow it"
        typer.echo(f"run {run['id']} of {name} is {run['status']}; it proceeds {begins}.")
        if not watch:
            typer.echo(f"What holds it up: lorad why {name}. To look on: lorad watch {name}")
    if watch:
        watch_run(place, parted(name)[0], run["id"], json_output=json_output)
