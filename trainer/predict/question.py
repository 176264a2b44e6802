"""What the daemon asks: one JSON object a question, checked before anything acts on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from npu.engine_choice import RequestedEngine
from npu.engine_options import EngineOptions, RequestedForm
from npu.htp import Soc, soc_of_part
from trainer.correction import DEFAULT
from trainer.predict.refused import Refused

TooLong = Literal["refuse", "cut"]
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Head:
    """Whom a question is for: a base model on an engine, and a version of an adapter on it."""

    id: int
    model: str
    base_hash: str
    version: str | None
    """The version's folder, relative to the home; None asks the bare base."""
    engine: RequestedEngine
    threads: int
    form: RequestedForm
    soc: Soc | None

    def engine_options(self, cache_dir: Path) -> EngineOptions:
        """How the engine is to be opened; compiled graphs are kept in `cache_dir`."""
        return EngineOptions(
            threads=self.threads, form=self.form, soc=self.soc, cache_dir=cache_dir
        )


@dataclass(frozen=True)
class Prior:
    """The labels of the client's own examples, to correct the answers by."""

    history: tuple[str, ...]
    """Oldest first."""
    weight: float
    decay: float


@dataclass(frozen=True)
class LabelQuestion:
    """Which of these labels does each of these inputs have?"""

    head: Head
    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    too_long: TooLong
    max_tokens: int
    """Of a prompt and the longest label."""
    prior: Prior | None


@dataclass(frozen=True)
class TextQuestion:
    """What does the assistant say next?"""

    head: Head
    messages: tuple[Mapping[str, str], ...]
    temperature: float
    """0: always the likeliest token."""
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]
    seed: int
    stream: bool


Question = LabelQuestion | TextQuestion


def question_id(raw: Mapping[str, Any]) -> int | None:
    """The number under which it is answered; None if it has none."""
    found = raw.get("id")
    return found if type(found) is int else None


def parse_question(raw: Mapping[str, Any]) -> Question:
    """Check a question that has an id.

    Raises:
        Refused: naming the first field that isn't as it should be.
    """
    match raw.get("op"):
        case "labels":
            return _label_question(raw)
        case "text":
            return _text_question(raw)
    raise _unlike("op", "labels or text")


def _label_question(raw: Mapping[str, Any]) -> LabelQuestion:
    labels = _texts(raw, "labels")
    if len(set(labels)) != len(labels) or not labels:
        raise _unlike("labels", "at least one label, and each once")
    too_long = raw.get("too_long", "refuse")
    if too_long not in get_args(TooLong):
        raise _unlike("too_long", " or ".join(get_args(TooLong)))
    given = raw.get("prior")
    return LabelQuestion(
        head=_head(raw),
        inputs=_texts(raw, "inputs"),
        labels=labels,
        too_long=too_long,
        max_tokens=_whole(raw, "max_tokens", least=1),
        prior=None if given is None else _prior(_of_kind(raw, "prior", dict, "an object")),
    )


def _text_question(raw: Mapping[str, Any]) -> TextQuestion:
    messages = _of_kind(raw, "messages", list, "a list")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            raise _unlike(f"messages.{number}", "a role and a content, both texts")
    return TextQuestion(
        head=_head(raw),
        messages=tuple({key: one[key] for key in ("role", "content")} for one in messages),
        temperature=_number(raw, "temperature", 0.0, least=0.0, most=100.0),
        top_p=_number(raw, "top_p", 1.0, least=0.0, most=1.0),
        max_tokens=_whole(raw, "max_tokens", least=1),
        stop=tuple(text for text in _texts(raw, "stop", ()) if text),
        seed=_whole(raw, "seed", 0, least=-(2**63), most=2**63 - 1),
        stream=_of_kind(raw, "stream", bool, "true or false", False),
    )


def _head(raw: Mapping[str, Any]) -> Head:
    options = _of_kind(raw, "engine", dict, "an object")
    engine, form = options.get("engine", "auto"), options.get("form", "auto")
    if engine not in get_args(RequestedEngine):
        raise _unlike("engine.engine", ", ".join(get_args(RequestedEngine)))
    if form not in get_args(RequestedForm):
        raise _unlike("engine.form", ", ".join(get_args(RequestedForm)))
    part = options.get("soc")
    try:
        soc = soc_of_part(part) if part else None
    except (ValueError, TypeError):
        raise _unlike("engine.soc", "a Snapdragon that lorad knows") from None
    version = raw.get("version")
    return Head(
        id=_whole(raw, "id"),
        model=_of_kind(raw, "model", str, "a name"),
        base_hash=_of_kind(raw, "base_hash", str, "a hash"),
        version=None if version is None else _of_kind(raw, "version", str, "a folder"),
        engine=engine,
        threads=_whole(options, "threads", 1, least=1),
        form=form,
        soc=soc,
    )


def _prior(raw: Mapping[str, Any]) -> Prior:
    return Prior(
        history=_texts(raw, "history"),
        weight=_number(raw, "weight", DEFAULT.weight, least=0.0, most=100.0),
        decay=_number(raw, "decay", DEFAULT.decay, least=0.0, most=1.0),
    )


def _of_kind(
    raw: Mapping[str, Any], key: str, kind: type[_Kind], words: str, default: Any = None
) -> _Kind:
    value = raw.get(key, default)
    if not isinstance(value, kind):
        raise _unlike(key, words)
    return value


def _texts(raw: Mapping[str, Any], key: str, default: Any = None) -> tuple[str, ...]:
    values = raw.get(key, default)
    if not isinstance(values, list | tuple) or not all(isinstance(one, str) for one in values):
        raise _unlike(key, "a list of texts")
    return tuple(values)


def _whole(
    raw: Mapping[str, Any],
    key: str,
    default: int | None = None,
    *,
    least: int = -(2**63),
    most: int = 2**63,
) -> int:
    value = raw.get(key, default)
    if type(value) is not int or not least <= value <= most:
        raise _unlike(key, f"a whole number from {least} to {most}")
    return value


def _number(
    raw: Mapping[str, Any], key: str, default: float, *, least: float, most: float
) -> float:
    value = raw.get(key, default)
    if type(value) not in (int, float) or not least <= value <= most:
        raise _unlike(key, f"a number from {least:g} to {most:g}")
    return float(value)


def _unlike(field: str, expected: str) -> Refused:
    return Refused(
        422, f"{field}: expected {expected}, found something else; correct it and ask again", field
    )
