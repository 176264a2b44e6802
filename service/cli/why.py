"""`lorad why`: whose turn it is, and what stands against it."""

import time
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.client import get
from service.cli.options import HomeOption, JsonOption, settings_with
from service.cli.outcome import print_json
from service.cli.status import engine_words
from service.home import Home

_LOOKS = 16
_LOOK_SECONDS = 0.5


def why(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An adapter of yours, or another's: client/name.")
    ],
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say why an adapter is being trained, or why it isn't: its rule, its window, the gates."""
    place = Home.at(settings_with(home=home).home)
    client, slash, adapter = name.rpartition("/")
    whose = f"?client={quote(client, safe='')}" if slash else ""
    found = get(place, f"/v1/adapters/{quote(adapter, safe='')}{whose}")
    device = _device(place)
    if json_output:
        print_json({"adapter": found, "device": device})
        return
    reason = found["why"]
    training = found["not_training_because"] is None
    typer.echo(f"{name}: {'training' if training else 'not training'} ({reason['rule']})")
    typer.echo(f"  {reason['says']}")
    for line in _facts(reason):
        typer.echo(f"  {line}")
    if device["engine"]["fallback"] is not None:
        typer.echo(f"  engine: {engine_words(device['engine'])}")
    _print_gates(device["gates"])


def _device(place: Home) -> Any:
    """The device with gates that were looked at just now: asking for it has them looked at."""
    get(place, "/v1/device")
    for _ in range(_LOOKS):
        time.sleep(_LOOK_SECONDS)
        device = get(place, "/v1/device")
        if any(gate["age_seconds"] is not None for gate in device["gates"]):
            break
    return device


def _facts(reason: dict[str, Any]) -> list[str]:
    facts = []
    if reason["place"] is not None:
        facts.append(f"place in line: {reason['place']}")
    if reason["minutes_used"] or reason["window_open"]:
        facts.append(f"tonight: {reason['minutes_used']:g} of {reason['minutes']} minutes used")
    window = "a window is open" if reason["window_open"] else "no window is open"
    if reason["next_window"] is not None:
        window += f"; the next one opens on {_local(reason['next_window'])}"
    return [*facts, window]


def _print_gates(gates: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("gate", "", "reading", "limit", "why")
    for gate in gates:
        table.add_row(
            gate["name"],
            "open" if gate["open"] else "closed",
            _value(gate["reading"], gate["unit"]),
            _value(gate["limit"], gate["unit"]),
            gate["reason"],
        )
    Console().print(table)


def _value(value: Any, unit: str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "bytes":
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:g} {unit or ''}".strip()


def _local(moment: str) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%a %d %b %H:%M}"
