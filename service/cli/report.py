"""`lorad report`: what this device is like for training, in numbers that name nobody."""

from __future__ import annotations

from contextlib import suppress
from statistics import median
from typing import Any

import typer

from service.cli.connection import find, http_client
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import fail, print_json
from service.cli.terminal import print_table
from service.home import Home

_SHOWN = 10
_COUNTED = {
    "steps": "lorad_training_steps_total",
    "tokens": "lorad_training_tokens_total",
    "seconds": "lorad_training_step_seconds_total",
}


def report(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Print an anonymised report of this device, to be passed on if you like: nothing is sent.

    Hardware, versions, engine, speed, temperatures and gates. No text, label, name, serial number
    or path is in it. Needs no daemon; one that runs adds its tokens per second.
    """
    from service.device_report import device_report
    from storage.database import Database, DatabaseFileError
    from storage.experience import experience
    from storage.migrations import SchemaVersionError

    place = home_of(home)
    try:
        database = Database.open_readonly(place.database)
    except (DatabaseFileError, SchemaVersionError) as error:
        fail(str(error))
    try:
        with database.read() as session:
            told = device_report(place, experience(session), _counted(place))
    finally:
        database.close()
    if json_output:
        print_json(told)
    else:
        _print(told)


def _counted(home: Home) -> dict[str, float] | None:
    """What a running daemon has counted since it began; None: none runs, or it did no step."""
    import httpx

    with suppress(OSError, ValueError, KeyError, httpx.HTTPError):
        at = find(home)
        if at is None:
            return None
        with http_client(home, at) as http:
            lines = http.get("/metrics").raise_for_status().text.splitlines()
        samples = dict(line.rpartition(" ")[::2] for line in lines if not line.startswith("#"))
        counted = {name: float(samples[metric]) for name, metric in _COUNTED.items()}
        return counted if counted["steps"] else None
    return None


def _print(told: dict[str, Any]) -> None:
    device, engine, speed = told["device"], told["engine"], told["speed"]
    system = "" if device["android"] is None else f", Android {device['android']}"
    typer.echo(
        f"device: {device['soc'] or 'no known SoC'}, {device['machine']}, {device['cores']} cores, "
        f"{device['memory_gib']} GiB, kernel {device['kernel']}{system}"
    )
    known = {name: version for name, version in told["libraries"].items() if version}
    libraries = ", ".join(f"{name} {version}" for name, version in known.items())
    typer.echo(f"lorad {told['lorad']}, Python {told['python']}, {libraries}")
    verdict = engine["verdict"]
    if verdict is None:
        typer.echo("engine: never tested; see: lorad doctor")
    else:
        typer.echo(f"engine: {verdict['engine']}, form {verdict['form']}")
    for test in engine["tests"]:
        state = "passed" if test["passed"] else "failed"
        typer.echo(f"  {test['engine']}, form {test['form']}: {state}")
    if engine["given_up"]:
        typer.echo(f"  given up: {', '.join(engine['given_up'])}")
    for model in told["models"]:
        typer.echo(
            f"model: {model['parameters']:,} parameters, {model['layers']} layers, "
            f"{model['format']}, {model['bytes_per_parameter']:.3f} bytes each"
        )
    if speed is not None:
        typer.echo(
            f"since the daemon began: {speed['steps']:.0f} steps, {speed['tokens_per_second']} "
            f"tokens/s, {speed['seconds_per_step']} s a step"
        )
    _print_trainings(told["trainings"])
    hottest = [one["hottest_celsius"] for one in told["nights"] if one["hottest_celsius"]]
    if hottest:
        typer.echo(
            f"nights: {len(told['nights'])}; hottest {max(hottest):.1f} °C, median "
            f"{median(hottest):.1f} °C"
        )
    for title, counts in (("gates closed", told["gates_closed"]), ("happened", told["happened"])):
        words = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        typer.echo(f"{title}: {words or 'none'}")


def _print_trainings(trainings: list[dict[str, Any]]) -> None:
    if not trainings:
        typer.echo("trainings: none yet")
        return
    rows = [
        (
            str(one["engine"]),
            _shown(one["threads"]),
            _shown(one["steps"]),
            _shown(one["seconds_per_step"]),
            _shown(one["fallbacks"]),
            str(one["verdict"]),
        )
        for one in trainings[:_SHOWN]
    ]
    print_table(("engine", "threads", "steps", "s a step", "fallbacks", "verdict"), rows)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
