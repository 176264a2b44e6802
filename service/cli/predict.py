"""`lorad predict`: asking an adapter."""

import sys
from typing import Annotated, Any

import typer

from service.cli.client import refused, session
from service.cli.names import AdapterArgument, adapter_path
from service.cli.options import HomeOption, JsonOption, home_of
from service.cli.outcome import Exit, fail, print_json

_MOST_INPUTS = 100
_SECONDS = 600.0
"""The first answer waits for the base model to be loaded."""


def predict(
    name: AdapterArgument,
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT…", help="'-': one text a line from standard input.")
    ],
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Default: the active version.")
    ] = None,
    prior: Annotated[
        bool,
        typer.Option("--prior", help="Correct by how often and lately each label was given."),
    ] = False,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Of an answer in free text.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of an answer in free text; 0, the default: no chance.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of an answer in free text.")] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Ask an adapter for the labels of texts, or without labels for an answer to each.

    A probability is the label's share among all labels; it isn't calibrated.
    """
    if texts == ["-"]:
        texts = [line.rstrip("\r\n") for line in sys.stdin]
        texts = [line for line in texts if line.strip()]
    if not texts:
        fail("expected a text, found none", Exit.USAGE)
    given = {
        "version": version,
        "prior": prior or None,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    options = {key: value for key, value in given.items() if value is not None}
    answers: list[dict[str, Any]] = []
    told: dict[str, Any] = {}
    with session(home_of(home)) as http:
        for start in range(0, len(texts), _MOST_INPUTS):
            body = options | {"inputs": texts[start : start + _MOST_INPUTS]}
            response = http.post(adapter_path(name, "/predict"), json=body, timeout=_SECONDS)
            refused(response)
            told = response.json()
            answers += told["predictions"]
            if not json_output:
                _print(told["predictions"])
    if json_output:
        print_json(told | {"predictions": answers})


def _print(answers: list[dict[str, Any]]) -> None:
    """One line an input for labels, as a shell likes it; texts as they are."""
    for answer in answers:
        if "label" in answer:
            typer.echo(f"{answer['label']}\t{100 * answer['probability']:.1f} %")
        else:
            typer.echo(answer["text"])
