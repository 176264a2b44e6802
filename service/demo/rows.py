"""The rows a demo plays: labelled texts with the side each of them is on.

Two sources: the notifications that ship with the demo, and a JSONL or TSV file of the user's own
(`--data`). What can't be used is refused with the numbers of its lines before anything is started.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal, cast

Split = Literal["train", "holdout"]

MINIMUM_ROWS = 40
MINIMUM_HOLDOUT = 30
"""Below this the daemon calls a measurement insufficient."""
SHOWN_PROBLEMS = 10

BUILT_IN = "notifications.jsonl"


class RowsError(ValueError):
    """The rows can't be used; the message names the file, the lines and the remedy."""


@dataclass(frozen=True)
class Row:
    """One labelled text."""

    input: str
    label: str
    split: Split


@dataclass(frozen=True)
class RowSet:
    """Rows in the order of time, and what a reader of the results should know about them."""

    rows: tuple[Row, ...]
    source: str
    """File name, for people."""
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """The distinct labels in the order of their first appearance."""
        return list(dict.fromkeys(row.label for row in self.rows))

    @property
    def train(self) -> list[Row]:
        """The rows to learn from."""
        return [row for row in self.rows if row.split == "train"]

    @property
    def holdout(self) -> list[Row]:
        """The rows to measure on."""
        return [row for row in self.rows if row.split == "holdout"]


def built_in_rows() -> RowSet:
    """The notifications of the invented person that ship with the demo."""
    text = files("service.demo").joinpath(BUILT_IN).read_text(encoding="utf-8")
    entries = [json.loads(line) for line in text.splitlines()]
    rows = tuple(Row(entry["input"], entry["label"], entry["split"]) for entry in entries)
    return RowSet(rows, BUILT_IN)


def read_rows(path: Path, *, holdout_share: float = 0.25) -> RowSet:
    """The user's own rows from a JSONL or TSV file with `input`, `label` and perhaps `split`.

    Args:
        path: `.tsv` with a header line, else one JSON object a line.
        holdout_share: share of the rows, counted from the end of the file, that is held out if no
            row has a `split`; at least `MINIMUM_HOLDOUT` rows are.

    Raises:
        RowsError: unreadable file, bad lines, too few rows or labels.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RowsError(
            f"expected a JSONL or TSV file at {path}, found: {error.strerror}"
        ) from error
    rows, problems = _parse(data, tsv=path.suffix.lower() == ".tsv")
    if problems:
        shown = "\n".join(f"  line {number}: {text}" for number, text in problems[:SHOWN_PROBLEMS])
        rest = len(problems) - SHOWN_PROBLEMS
        more = f"\n  and {rest} more" if rest > 0 else ""
        raise RowsError(
            f"{path.name} has lines that can't be used; mend or drop them:\n{shown}{more}"
        )
    return _row_set(rows, path.name, holdout_share)


def subset(rows: RowSet, train: int, holdout: int) -> RowSet:
    """At most so many rows of each side, with every label's share kept, spread over the whole time.

    Raises:
        RowsError: too few labels are left.
    """
    keep = {id(row) for row in _spread(rows.train, train) + _spread(rows.holdout, holdout)}
    result = replace(rows, rows=tuple(row for row in rows.rows if id(row) in keep))
    _check_sides(result)
    return result


def same_text(text: str) -> str:
    """The form in which two inputs count as the same: NFKC, casefolded, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(frozen=True)
class _Entry:
    input: str
    label: str
    split: Split | None


class _LineError(ValueError):
    """What is wrong with one line."""


def _spread(rows: Sequence[Row], count: int) -> list[Row]:
    by_label = sorted(rows, key=lambda row: row.label)
    if count >= len(rows):
        return by_label
    return [by_label[index * len(rows) // count] for index in range(count)]


def _parse(data: bytes, *, tsv: bool) -> tuple[list[_Entry], list[tuple[int, str]]]:
    entries: list[_Entry] = []
    problems: list[tuple[int, str]] = []
    columns: list[str] | None = None
    for number, raw in _lines(data):
        try:
            text = raw.decode("utf-8")
            if not tsv:
                entries.append(_entry(_json_fields(text)))
            elif columns is None:
                columns = _header(text)
            else:
                entries.append(_entry(_tsv_fields(text, columns)))
        except UnicodeDecodeError as error:
            problems.append((number, f"not UTF-8 at byte {error.start + 1}"))
        except _LineError as error:
            problems.append((number, str(error)))
        if tsv and columns is None:
            break
    return entries, problems


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            yield number, line.removesuffix(b"\r")


def _json_fields(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _LineError(f"not JSON ({error})") from error
    except RecursionError as error:
        raise _LineError("not JSON that can be read (nested too deeply)") from error
    if not isinstance(value, dict):
        raise _LineError('expected an object like {"input": "...", "label": "..."}')
    return value


def _header(text: str) -> list[str]:
    columns = [name.strip() for name in text.split("\t")]
    missing = [name for name in ("input", "label") if name not in columns]
    if missing:
        found = " and no ".join(missing)
        raise _LineError(f"expected a header with the columns input and label, found no {found}")
    if len(set(columns)) != len(columns):
        raise _LineError("a column name occurs twice in the header")
    return columns


def _tsv_fields(text: str, columns: list[str]) -> dict[str, object]:
    values = text.split("\t")
    if len(values) != len(columns):
        raise _LineError(f"expected {len(columns)} columns, found {len(values)}")
    fields: dict[str, object] = dict(zip(columns, values, strict=True))
    if fields.get("split") == "":
        del fields["split"]
    return fields


def _entry(fields: dict[str, object]) -> _Entry:
    texts = {}
    for name in ("input", "label"):
        value = fields.get(name)
        if not isinstance(value, str):
            raise _LineError(f"{name} must be text, found {_kind(fields, name)}")
        if not value.strip():
            raise _LineError(f"{name} is empty")
        if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
            raise _LineError(f"{name} holds a sign that is no text (NUL or half a surrogate pair)")
        texts[name] = value
    split = fields.get("split")
    if split not in (None, "train", "holdout"):
        raise _LineError(f'split must be "train" or "holdout", found {split!r}')
    return _Entry(texts["input"], texts["label"].strip(), split)


def _kind(fields: dict[str, object], name: str) -> str:
    return type(fields[name]).__name__ if name in fields else "nothing"


def _row_set(entries: list[_Entry], source: str, holdout_share: float) -> RowSet:
    if len(entries) < MINIMUM_ROWS:
        raise RowsError(
            f"{source} has {len(entries)} rows, expected at least {MINIMUM_ROWS}; add more examples"
        )
    given = sum(entry.split is not None for entry in entries)
    if given not in (0, len(entries)):
        raise RowsError(
            f"{source} gives a split on {given} of {len(entries)} rows; give it on all or on none"
        )
    notes: list[str] = []
    if given:
        rows = [Row(entry.input, entry.label, cast(Split, entry.split)) for entry in entries]
    else:
        held_out = max(MINIMUM_HOLDOUT, math.ceil(holdout_share * len(entries)))
        first = len(entries) - held_out
        rows = [
            Row(entry.input, entry.label, "train" if index < first else "holdout")
            for index, entry in enumerate(entries)
        ]
        notes.append(f"no split column: the last {held_out} rows of the file are held out")
    rows = _without_leaks(rows, notes)
    result = RowSet(tuple(rows), source, tuple(notes))
    _check_sides(result)
    return result


def _without_leaks(rows: list[Row], notes: list[str]) -> list[Row]:
    known = {same_text(row.input) for row in rows if row.split == "train"}
    kept = [row for row in rows if row.split == "train" or same_text(row.input) not in known]
    if len(kept) < len(rows):
        notes.append(
            f"{len(rows) - len(kept)} held-out rows repeat a training row and are left out"
        )
    return kept


def _check_sides(rows: RowSet) -> None:
    if len(rows.labels) < 2:
        only = ", ".join(rows.labels)
        raise RowsError(f"{rows.source} has one label only ({only}), expected at least 2")
    if not rows.holdout:
        raise RowsError(f"{rows.source} holds out no row; mark some with split holdout")
    learnt = {row.label for row in rows.train}
    if len(learnt) < 2:
        raise RowsError(
            f"the training side of {rows.source} has {len(learnt)} label(s), expected at least 2; "
            "mix the rows or give a split"
        )
