"""`lorad why`: whose turn it is, and what stands against it."""

import time
from datetime import datetime
from typing import Any

import typer

from service.cli.client import get
from service.cli.names import AdapterArgument, adapter_path
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import print_json
from service.cli.status import engine_words, wake_lock_words
from service.cli.terminal import print_table
from service.home import Home

_LOOKS = 16
_LOOK_SECONDS = 0.5


def why(
    name: AdapterArgument,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say why an adapter is being trained, or why it isn't: its rule, its window, the gates."""
    place = home_of(home)
    found = get(place, adapter_path(name))
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
    if (words := wake_lock_words(device["wake_lock"])) is not None:
        typer.echo(f"  {words}")
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
    rows = [
        (
            gate["name"],
            "open" if gate["open"] else "closed",
            _value(gate["reading"], gate["unit"]),
            _value(gate["limit"], gate["unit"]),
            gate["reason"],
        )
        for gate in gates
    ]
    print_table(("gate", "", "reading", "limit", "why"), rows)


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
