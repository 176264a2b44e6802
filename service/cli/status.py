"""`lorad status`: what the daemon is doing."""

from typing import Any

import typer

from service.cli.client import get, get_adapters
from service.cli.names import named
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import print_json


def status(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Say what the training of everybody's adapters is doing, or why it isn't training."""
    place = home_of(home)
    models = get(place, "/v1/models")["models"]
    device = get(place, "/v1/device")
    engine, memory = device["engine"], device["training_memory_bytes"]
    wake_lock = device["wake_lock"]
    adapters = get_adapters(place, everyone=True)
    if json_output:
        print_json(
            {
                "models": models,
                "engine": engine,
                "training_memory_bytes": memory,
                "wake_lock": wake_lock,
                "adapters": adapters,
            }
        )
        return
    names = ", ".join(model["name"] for model in models) or "none; see: lorad model add --help"
    typer.echo(f"base models: {names}")
    typer.echo(f"engine: {engine_words(engine)}")
    typer.echo(f"memory: a training takes at most {memory // 1024**2} MiB (LORAD_MEMORY_MB)")
    if (words := wake_lock_words(wake_lock)) is not None:
        typer.echo(words)
    if not adapters:
        typer.echo("no adapters yet")
    for adapter in adapters:
        typer.echo(f"{named(adapter['client'], adapter['name'])}: {_training(adapter)}")


def engine_words(engine: dict[str, Any]) -> str:
    """What computes the frozen products of runs now, and why, on one line."""
    parts = [engine["name"] or "not known", engine["form"] and f"form {engine['form']}"]
    words = f"{', '.join(part for part in parts if part)}: {engine['why']}"
    cause = engine["fallback"]
    return words if cause is None or cause in words else f"{words}; {cause}"


def wake_lock_words(wake_lock: dict[str, Any]) -> str | None:
    """How it is with the wake lock; None where the device takes none."""
    if wake_lock["state"] == "none":
        return None
    return f"wake lock: {wake_lock['state'].replace('-', ' ')}: {wake_lock['why']}"


def _training(adapter: dict[str, Any]) -> str:
    run = adapter["current_run"]
    if run is None or adapter["not_training_because"] is not None:
        return f"not training: {adapter['not_training_because']}"
    words = [f"run {run['id']}, {run['phase'] or 'starting'}"]
    if run["total_steps"]:
        words.append(f"step {run['step']} of {run['total_steps']}")
    if run["loss"] is not None:
        words.append(f"loss {run['loss']:.3f}")
    return ", ".join(words)
