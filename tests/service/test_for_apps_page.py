"""The page for app developers: its code runs, its numbers are the code's, its tables are whole."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_schemas import adapters, clients, examples, openai, predictions
from api_schemas.problems import FieldError, Problem
from api_schemas.scopes import MEANINGS
from service.clients import pairing
from service.door import body_limit, connections, cursors, idempotency, problems, strict_json
from service.predictions import waiting_line
from service.routes import examples as example_routes
from service.runs import run_feed
from service.runs.verdict import LEAST_HOLDOUT
from service.settings import Settings
from storage import adapters as adapter_rows
from storage import history, retention, split
from storage import idempotency as idempotency_records
from tests.service.daemon import Daemon, add_stand_in_model
from tests.service.test_python_client import pairing_code

FOLDER = Path(__file__).parents[2] / "service/for_apps"
PAGE = (FOLDER / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the table that begins with ``heading``, by their first cell."""
    start = PAGE.index(f"| {heading} |")
    rows = {}
    for line in PAGE[start:].split("\n\n")[0].splitlines()[2:]:
        first, *others = (cell.strip() for cell in line.strip("|").split("|"))
        rows[first.strip("`")] = others
    return rows


def bound(model: Any, field: str, name: str) -> Any:
    """A field's bound in the JSON schema of its model."""
    schema = model.model_json_schema()
    found = schema["properties"][field]
    for part in [found, *found.get("anyOf", [])]:
        if name in part:
            return part[name]
    raise AssertionError(f"{field} has no {name}")


LIMITS = {
    "body of a request": body_limit.MOST_BODY_BYTES,
    "body of an imported adapter": body_limit.MOST_IMPORT_BYTES,
    "examples in one JSON request": examples.MOST_EXAMPLES,
    "lines in one NDJSON request": examples.MOST_LINES,
    "characters of an input": bound(examples.PostedExample, "input", "maxLength"),
    "characters of a label, where the adapter declares none": bound(
        examples.PostedExample, "label", "maxLength"
    ),
    "characters of a declared label": bound(adapters.NewAdapter, "labels", "items")["maxLength"],
    "declared labels": bound(adapters.NewAdapter, "labels", "maxItems"),
    "characters of an `external_id`": bound(examples.PostedExample, "external_id", "maxLength"),
    "tokens of prompt and answer, unless you set `max_tokens`": adapters.DEFAULT_MAX_TOKENS,
    "adapters of one client": adapter_rows.MOST_ADAPTERS,
    "nesting of JSON": strict_json.MOST_NESTING,
    "values in one JSON body": strict_json.MOST_VALUES,
    "seconds a body may take to arrive": body_limit.MOST_SECONDS,
    "errors listed in one answer": problems.MOST_FIELD_ERRORS,
    "items a page": cursors.MOST_A_PAGE,
    "examples a page": example_routes.MOST_A_PAGE,
    "characters of an `Idempotency-Key`": idempotency.MOST_KEY,
    "hours an `Idempotency-Key` is remembered": idempotency_records.KEPT_MS / 3_600_000,
    "keys of one client remembered at a time": idempotency_records.MOST_KEPT,
    "examples a day (UTC), by default": clients.DEFAULT_EXAMPLES_PER_DAY,
    "bytes of text kept, by default": clients.DEFAULT_MOST_BYTES,
    "pending examples, by default": clients.DEFAULT_MOST_PENDING,
    "`keep_days` of an adapter, at most": bound(adapters.Retention, "keep_days", "maximum"),
    "`max_examples` of an adapter, at most": bound(adapters.Retention, "max_examples", "maximum"),
    "days the shell of an expired example is kept": retention.SHELL_DAYS,
    "MiB kept on the disk for an adapter with `top_layers`, by default": (
        Settings.model_fields["prefix_cache_mb"].default
    ),
    "connections in all (a new one then closes the one idle longest)": (
        connections.MOST_CONNECTIONS
    ),
    "inputs of one prediction": predictions.MOST_INPUTS,
    "tokens of an answer in text": predictions.MOST_NEW_TOKENS,
    "`stop` texts of an answer": predictions.MOST_STOPS,
    "messages of a chat": openai.MOST_MESSAGES,
    "predictions of one client that wait": waiting_line.MOST_WAITING_A_CLIENT,
    "predictions that wait in all": waiting_line.MOST_WAITING,
    "event streams of one client": run_feed.STREAMS_A_CLIENT,
    "event streams in all": run_feed.STREAMS_MOST,
    "events kept of a run for `Last-Event-ID`": run_feed.RING_EVENTS,
    "entries of the history": history.KEPT,
    "digits of a pairing code": pairing.CODE_DIGITS,
    "seconds a pairing code is good for": pairing.CODE_SECONDS,
    "wrong pairing codes, until all waiting ones are void": pairing.MOST_WRONG,
}


def test_every_limit_is_the_one_in_the_code() -> None:
    said = {}
    for name, [limit] in table("what").items():
        number, _, unit = limit.partition(" ")
        said[name] = int(number.replace(",", "")) * {"": 1, "MiB": 2**20}[unit]
    assert said == {name.strip("`"): limit for name, limit in LIMITS.items()}


def test_numbers_in_the_text_are_those_in_the_code() -> None:
    flat = " ".join(PAGE.split())
    assert f"holds out {split.HOLDOUT_PERCENT} %" in flat
    assert f"With fewer than {LEAST_HOLDOUT} held-out examples" in flat
    assert f"without text, for {retention.SHELL_DAYS} days" in flat


def test_every_scope_and_every_status_is_told(shared: Daemon) -> None:
    assert {scope: [meaning] for scope, meaning in MEANINGS.items()} == table("scope")
    document = shared.http.get("/openapi.json").json()
    told = set(table("status"))
    documented = {
        status
        for operations in document["paths"].values()
        for operation in operations.values()
        for status in operation["responses"]
        if status >= "400"
    }
    assert documented | {"405"} == told
    for field in [*Problem.model_fields, *FieldError.model_fields]:
        assert f"`{field}`" in PAGE or field == "type"


def test_every_route_that_is_named_exists(shared: Daemon) -> None:
    paths = shared.http.get("/openapi.json").json()["paths"]
    known = {re.sub(r"\{\w+\}", "{}", path) for path in paths} | {"/openapi.json", "/docs"}
    for method, path in re.findall(r"`(GET|POST|PATCH|PUT|DELETE) (/[^`?]*)", PAGE):
        template = re.sub(r"\{\w+\}|<\w+>", "{}", path)
        assert template in known, path
        documented = next((p for p in paths if re.sub(r"\{\w+\}", "{}", p) == template), None)
        assert documented is None or method.lower() in paths[documented], (method, path)


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose model has the name of the default one."""
    home = tmp_path / "home"
    add_stand_in_model(home, adapters.DEFAULT_MODEL)
    with Daemon(home) as daemon:
        yield daemon


def test_the_python_runs_as_it_stands(named: Daemon, tmp_path: Path) -> None:
    program = "\n".join(blocks("python"))
    sample = 'port, code = 8765, "1234 5678"'
    assert sample in program
    code = pairing_code(named)
    program = program.replace(sample, f'port, code = {named.port}, "{code[:4]} {code[4:]}"')
    file = tmp_path / "app.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, str(file)],
        env={"PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "snapshot" in done.stdout
    assert "end completed" in done.stdout


def test_the_shell_runs_as_it_stands(named: Daemon, tmp_path: Path) -> None:
    pair_block, *others = blocks("sh")
    header = (
        f"{sys.executable} -c \"import json; print('Authorization: Bearer ' + "
        "json.load(open('credentials.json'))['token'])\" > header.txt\n"
    )
    script = "set -eu\n" + pair_block + header + "\n".join(others)
    done = subprocess.run(
        ["sh", "-c", script],
        env={"PATH": "/usr/bin:/bin", "PORT": str(named.port), "CODE": pairing_code(named)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert '"name":"outbox"' in done.stdout
    last = done.stdout[done.stdout.rindex('{"name":"outbox"') :]
    counts = json.JSONDecoder().raw_decode(last)[0]["examples"]
    assert counts["train"] + counts["holdout"] == 3
    assert last.count('"probability":0.7,"labels"') == 2


def test_every_block_is_run_or_said_not_to_be() -> None:
    languages = re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)
    assert set(languages) == {"python", "sh", "xml", "kotlin"}  # Kotlin: test_kotlin_source.py
    assert "not run by lorad's tests" in PAGE
    assert languages.count("xml") == 1
