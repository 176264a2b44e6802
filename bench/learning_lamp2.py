"""The official LaMP-2 files, for whoever has them: `read_lamp2(questions.json, outputs.json)`.

Questions are a list of `{"id", "input", "profile": [{"id", "tag", "description"}, …]}`, outputs
`{"task": "LaMP_2", "golds": [{"id", "output"}, …]}`. The input ends in `description: …` after an
instruction that lists the tags; only the description is kept: a trained adapter needs no list.
Each question is its own user, with the profile as history.

Source: Salemi et al. (arXiv 2304.11406); LaMP-Benchmark/LaMP.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench.learning_rows import History, LabelledText, LearningDataError, PersonalTask

TAGS = (
    "sci-fi",
    "based on a book",
    "comedy",
    "action",
    "twist ending",
    "dystopia",
    "dark comedy",
    "classic",
    "psychology",
    "fantasy",
    "romance",
    "thought-provoking",
    "social commentary",
    "violence",
    "true story",
)
_DESCRIPTION = re.compile(r"\bdescription:\s*(?P<text>.*)\Z", re.DOTALL)


def read_lamp2(questions: Path, outputs: Path) -> PersonalTask:
    """Both files as one task; a user is named by the question's id.

    Raises:
        LearningDataError: a file that isn't of this form, a tag that isn't one of the fifteen, a
            question without an output, or an output without a question.
        OSError: a file can't be read.
    """
    golds = _golds(outputs)
    histories: dict[str, History] = {}
    queries: dict[str, tuple[LabelledText, ...]] = {}
    for place, question in enumerate(_list(_parsed(questions), questions.name, "questions")):
        where = f"{questions.name}, question {place}"
        name = _field(question, "id", where)
        where = f"{questions.name}, question {name}"
        if name in queries:
            raise LearningDataError(f"{where}: expected each id once, found it again")
        if name not in golds:
            raise LearningDataError(f"{where}: expected its output in {outputs.name}, found none")
        found = _DESCRIPTION.search(_field(question, "input", where))
        if found is None:
            raise LearningDataError(f"{where}: expected an input with 'description: …', found none")
        profile = _list(question.get("profile"), where, "a profile")
        histories[name] = History(tuple(_profile_row(item, where) for item in profile))
        queries[name] = (LabelledText(found["text"].strip(), golds.pop(name)),)
    if golds:
        raise LearningDataError(
            f"{outputs.name}: expected only outputs of questions in {questions.name}, found"
            f" {next(iter(golds))}"
        )
    return PersonalTask("lamp2", TAGS, histories, queries)


def _golds(path: Path) -> dict[str, str]:
    content = _parsed(path)
    if not isinstance(content, dict) or content.get("task") not in ("LaMP_2", "LaMP_2M"):
        found = content.get("task") if isinstance(content, dict) else type(content).__name__
        raise LearningDataError(f"{path.name}: expected an object with task LaMP_2, found {found}")
    golds = {}
    for place, gold in enumerate(_list(content.get("golds"), path.name, "golds")):
        where = f"{path.name}, gold {place}"
        golds[_field(gold, "id", where)] = _tag(_field(gold, "output", where), where)
    return golds


def _profile_row(item: Any, where: str) -> LabelledText:
    """One earlier film; earlier releases of LaMP call its description `text`."""
    name = "text" if isinstance(item, dict) and "description" not in item else "description"
    where = f"{where}, profile"
    return LabelledText(_field(item, name, where), _tag(_field(item, "tag", where), where))


def _tag(found: str, where: str) -> str:
    if (tag := found.strip()) not in TAGS:
        raise LearningDataError(f"{where}: expected one of the {len(TAGS)} tags, found {tag!r}")
    return tag


def _field(item: Any, name: str, where: str) -> str:
    value = item.get(name) if isinstance(item, dict) else None
    if isinstance(value, int) and name == "id":
        return str(value)
    if not isinstance(value, str):
        raise LearningDataError(f"{where}: expected a text {name}, found {type(value).__name__}")
    return value


def _list(value: Any, where: str, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise LearningDataError(f"{where}: expected {what} as a list, found {type(value).__name__}")
    return value


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LearningDataError(f"{path.name}: expected JSON, found {error}") from None
