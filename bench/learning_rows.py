"""Whose labels the learning bench learns: users with a history and, kept apart, later queries.

A choice (of a rate, an epoch, a prior) is made from a `History` alone: its last fifth, the cut, is
held back while choosing. The queries of a task lie in another mapping, which no choosing function
takes.
"""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.demo.rows import same_text

CUT_SHARE = 5
"""One history row in so many, the latest ones, is held back while choosing."""

HWU64_FILE = Path("phone_labels") / "hwu64_kfold1.tsv"
HWU64_COLUMNS = ["split", "answerid", "scenario", "intent", "text"]

TAGS_FILE = Path("lamp2_like") / "movie_tags_hetrec.jsonl"
ASKED_FROM = 10
TAG_FIELDS = {"user", "title", "year", "tag", "timestamp"}
TAG_FIELDS |= {"description_tmdb", "description_wikipedia"}


class LearningDataError(ValueError):
    """The data can't be used; the message names the file, what was expected and what was found."""


@dataclass(frozen=True)
class LabelledText:
    """One row."""

    input: str
    label: str


@dataclass(frozen=True)
class History:
    """What is known of one user at the time of asking, in the order of time."""

    rows: tuple[LabelledText, ...]

    @property
    def cut(self) -> tuple[LabelledText, ...]:
        """The latest fifth; at least one row."""
        return self.rows[-max(1, len(self.rows) // CUT_SHARE) :]

    @property
    def before_cut(self) -> tuple[LabelledText, ...]:
        """All the others."""
        return self.rows[: -len(self.cut)]


@dataclass(frozen=True)
class PersonalTask:
    """Users, what they labelled, and what they are asked later."""

    name: str
    labels: tuple[str, ...]
    histories: Mapping[str, History]
    queries: Mapping[str, tuple[LabelledText, ...]]
    """By the same users as the histories."""
    donors: tuple[LabelledText, ...] = ()
    """Rows of other users, none of whom is asked anything."""

    def sizes(self) -> dict[str, int]:
        """For the result."""
        return {
            "users": len(self.histories),
            "labels": len(self.labels),
            "history_rows": sum(len(history.rows) for history in self.histories.values()),
            "cut_rows": sum(len(history.cut) for history in self.histories.values()),
            "queries": sum(len(rows) for rows in self.queries.values()),
            "donor_rows": len(self.donors),
        }


def read_hwu64(data: Path, intents: int, history: int, queries: int) -> PersonalTask:
    """A pseudo-user of HWU64: its most frequent intents, and rows of them sampled once.

    Ties go by name. History rows come from the file's own split `train`, queries from `test`; a
    query whose text also stands in the history is not asked.

    Source: xliuhw/NLU-Evaluation-Data (CC BY 4.0), a fold as TSV.

    Raises:
        LearningDataError: another header, or too few rows.
        OSError: no such file.
    """
    path = data / HWU64_FILE
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    if header != HWU64_COLUMNS:
        raise LearningDataError(
            f"{path.name}: expected the columns {', '.join(HWU64_COLUMNS)}, found {header}"
        )
    records = [dict(zip(HWU64_COLUMNS, line, strict=True)) for line in lines]
    named = [
        (r["split"], LabelledText(r["text"], f"{r['scenario']} {r['intent']}".replace("_", " ")))
        for r in records
    ]
    counts = Counter(row.label for _, row in named)
    labels = sorted(counts, key=lambda label: (-counts[label], label))[:intents]
    dice = random.Random(0)  # noqa: S311 - sampling, not secrets
    chosen = _sample(dice, [r for s, r in named if s == "train" and r.label in labels], history)
    known = {same_text(row.input) for row in chosen}
    unseen = [
        row
        for split, row in named
        if split == "test" and row.label in labels and same_text(row.input) not in known
    ]
    return PersonalTask(
        "hwu64",
        tuple(labels),
        {"hwu64": History(chosen)},
        {"hwu64": _sample(dice, unseen, queries)},
    )


def _sample(
    dice: random.Random, rows: Sequence[LabelledText], count: int
) -> tuple[LabelledText, ...]:
    if len(rows) < count:
        raise LearningDataError(f"expected at least {count} rows to sample from, found {len(rows)}")
    return tuple(dice.sample(rows, count))


def read_movie_tags(data: Path) -> PersonalTask:
    """Tags that people gave to films: LaMP-2's kind of task on data that can be had.

    Users with at least ten rows are asked about their latest fifth; the rows of all the
    others are the donors'.

    Raises:
        LearningDataError: a row without one of the fields.
        OSError: no such file.
    """
    path = data / TAGS_FILE
    by_user: dict[str, list[tuple[int, LabelledText]]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row = json.loads(line)
        if missing := sorted(TAG_FIELDS - row.keys()):
            raise LearningDataError(
                f"{path.name}, line {number}: expected {missing[0]}, found none"
            )
        text = LabelledText(film_text(row), row["tag"])
        by_user.setdefault(row["user"], []).append((row["timestamp"], text))
    histories: dict[str, History] = {}
    queries: dict[str, tuple[LabelledText, ...]] = {}
    donors: list[LabelledText] = []
    for user, timed in by_user.items():
        rows = tuple(text for _, text in sorted(timed, key=lambda pair: pair[0]))
        if len(rows) < ASKED_FROM:
            donors += rows
            continue
        latest = len(rows) // CUT_SHARE
        histories[user], queries[user] = History(rows[:-latest]), rows[-latest:]
    labels = sorted({text.label for rows in by_user.values() for _, text in rows})
    return PersonalTask("movie_tags", tuple(labels), histories, queries, tuple(donors))


def film_text(row: Mapping[str, Any]) -> str:
    """What a film is described by.

    Wikipedia's first sentence names title, year, genre and source ("based on the novel by …"); the
    advertiser's text doesn't, so it only stands in, with title and year before it.
    """
    wikipedia: str = row["description_wikipedia"] or ""
    return wikipedia or f"{row['title']} ({row['year']}). {row['description_tmdb'] or ''}".strip()
