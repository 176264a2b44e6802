"""`lorad demo`: the main job from end to end, on the notifications of an invented person.

It makes a home of its own, adds the model with `lorad model add`, starts `lorad serve`, and then
plays an app over HTTP: examples in, one training run, a measured adapter out. Baselines that need
no model are printed beside it, with paired tests.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class EngineChoice(StrEnum):
    """Who multiplies with the frozen weights."""

    AUTO = "auto"
    QNN = "qnn"
    ONNX_CPU = "onnx_cpu"
    TORCH_CPU = "torch_cpu"


def demo(
    data: Annotated[
        Path | None,
        typer.Option(help="Your own JSONL or TSV: input, label, and perhaps split."),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one JSON object last; progress goes to stderr.")
    ] = False,
    engine: Annotated[
        EngineChoice, typer.Option(help="Who multiplies with the frozen weights.")
    ] = EngineChoice.AUTO,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="A tiny random model and few rows: plumbing only.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Order of the data and start of A.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="New folder for home and adapter; without it only the adapter stays."),
    ] = None,
    holdout_share: Annotated[
        float,
        typer.Option(min=0.05, max=0.9, help="Share of --data held out if it has no split."),
    ] = 0.25,
) -> None:
    """Train and measure an adapter from end to end, over HTTP, in a home of its own."""
    # Imported here, so that the daemon, another command of this program, doesn't carry it all.
    from rich.console import Console

    from service.demo import play
    from service.demo.children import ChildError
    from service.demo.player import PlayError
    from service.demo.report import print_table
    from service.demo.rows import RowsError, built_in_rows, read_rows, subset

    console = Console(stderr=json_output)
    try:
        rows = built_in_rows() if data is None else read_rows(data, holdout_share=holdout_share)
        if tiny:
            rows = subset(rows, play.TINY_TRAIN, play.TINY_HOLDOUT)
            rows = replace(rows, notes=(*rows.notes, play.TINY_NOTE))
        if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise RowsError(f"--keep wants a new or empty folder, {keep} has something in it")
        training = play.training_options(data is None, tiny, seed, steps, learning_rate)
        plan = play.Plan(rows, engine.value, tiny, seed, training, keep)
        with _terminate_as_interrupt():
            summary = play.play(plan, console)
    except (RowsError, ChildError, PlayError) as error:
        Console(stderr=True).print(f"lorad demo: {error}", style="red", markup=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        Console(stderr=True).print("lorad demo: stopped; nothing is left running", style="red")
        raise typer.Exit(1) from error
    print_table(summary, console)
    if json_output:
        typer.echo(json.dumps(summary, ensure_ascii=False))


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Clean up on SIGTERM as on Ctrl-C."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
