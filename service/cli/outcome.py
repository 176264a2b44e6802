"""How a command ends: its exit code, and what it prints."""

import json
from enum import IntEnum
from typing import Any, NoReturn

import typer


class Exit(IntEnum):
    """The exit codes of `lorad`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_REACHABLE = 3
    REFUSED = 4
    """The daemon says no, or that there is no such thing: asked again it would say the same."""
    INTERRUPTED = 130


def fail(message: str, code: Exit = Exit.FAILED) -> NoReturn:
    """End the command with a message on standard error."""
    typer.echo(f"lorad: {message}", err=True)
    raise typer.Exit(code)


def tell(answer: Any, words: str, json_output: bool) -> None:
    """Print what the daemon answered, as JSON or in words."""
    if json_output:
        print_json(answer)
    else:
        typer.echo(words)


def tell_deleted(name: str, answer: dict[str, Any], json_output: bool) -> None:
    """Say that it is deleted with its examples, and whether traces of them are left."""
    words = f"{name} and its {answer['deleted']} examples are deleted."
    if answer["erased"] != "done":
        words += f"\nTheir last traces are being erased (erasure {answer['erasure']})."
    tell(answer, words, json_output)


def print_json(value: Any) -> None:
    """Print one JSON value on standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_json_line(value: Any) -> None:
    """Print one JSON value on a line of standard output, at once: of a command that goes on."""
    typer.echo(json.dumps(value, ensure_ascii=False))
