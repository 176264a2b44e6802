"""The lines of a file of examples: JSONL, TSV with a header line, or CSV with one.

Only `input`, `label`, `split` and `external_id` are read, so that what `lorad examples export`
wrote can be read back. Nothing of a text is ever quoted in a message.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Literal

Format = Literal["jsonl", "tsv", "csv"]

_NEEDED = ("input", "label")
_OPTIONAL = ("split", "external_id")
_MOST_FIELD_CHARACTERS = 1_000_000


class ExampleFileError(Exception):
    """The file as a whole can't be used; the message says why."""


@dataclass(frozen=True)
class FileLine:
    """An example as the API takes it, or what is wrong with its line; ``number`` counts from 1."""

    number: int
    example: dict[str, Any] | None
    fault: str | None = None


def format_of(name: str) -> Format:
    """The format by the file's name: .tsv and .csv are what they say, anything else is JSONL."""
    ending = name.lower().rpartition(".")[2]
    return "tsv" if ending == "tsv" else "csv" if ending == "csv" else "jsonl"


def read_lines(source: IO[bytes], form: Format) -> Iterator[FileLine]:
    """The lines of the file in order; blank ones are passed over.

    Raises:
        ExampleFileError: there is no header where one is needed, or it isn't UTF-8.
        OSError: the file can't be read.
    """
    return _json_lines(source) if form == "jsonl" else _table_lines(source, form)


def _json_lines(source: IO[bytes]) -> Iterator[FileLine]:
    for number, raw in enumerate(source, start=1):
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # their words may quote the line
            yield FileLine(number, None, "is not JSON in UTF-8")
            continue
        if isinstance(value, dict):
            yield _line(number, value)
        else:
            yield FileLine(number, None, 'expected an object like {"input": "…", "label": "…"}')


def _table_lines(source: IO[bytes], form: Format) -> Iterator[FileLine]:
    text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
    csv.field_size_limit(_MOST_FIELD_CHARACTERS)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if form == "csv" else csv.QUOTE_NONE
    rows = csv.reader(text, delimiter="," if form == "csv" else "\t", quoting=quoting)
    columns: list[str] | None = None
    before = 0
    try:
        for row in rows:
            number, before = before + 1, rows.line_num
            if not row or row == [""]:
                continue
            if columns is None:
                columns = _columns(row)
                continue
            if len(row) != len(columns):
                fault = f"expected {len(columns)} columns, found {len(row)}"
                yield FileLine(number, None, fault)
                continue
            fields: dict[str, Any] = dict(zip(columns, row, strict=True))
            yield _line(number, {k: v for k, v in fields.items() if v or k in _NEEDED})
    except UnicodeDecodeError:
        raise ExampleFileError(f"expected UTF-8, found other bytes after line {before}") from None
    except csv.Error as error:
        raise ExampleFileError(f"line {before + 1} can't be read: {error}") from None
    finally:
        text.detach()


def _columns(row: list[str]) -> list[str]:
    columns = [name.strip() for name in row]
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise ExampleFileError(
            "expected a first line that names the columns, among them input and label; found no "
            f"{' and no '.join(missing)}"
        )
    if len(set(columns)) != len(columns):
        raise ExampleFileError("a column's name occurs twice in the first line; name each once")
    return columns


def _line(number: int, fields: dict[str, Any]) -> FileLine:
    for name in _NEEDED:
        if not isinstance(fields.get(name), str):
            return FileLine(number, None, f"expected text as {name}, found none")
    optional = {name: fields[name] for name in _OPTIONAL if fields.get(name) is not None}
    return FileLine(number, {name: fields[name] for name in _NEEDED} | optional)
