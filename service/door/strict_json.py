"""JSON as RFC 8259 means it, without what Python's parser lets through.

Refused: bytes that aren't UTF-8, NaN and infinities (also as 1e999), the same key twice, lone
surrogates, nesting deeper than `MOST_NESTING`, where asked for also too many values. What belongs
to a place in the document is reported with that place, so that a client learns which field was
wrong.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

MOST_NESTING = 32

MOST_VALUES = 20_000
"""Values, those in others included, that a client's document may have.

Two million empty lists fit into a body; to read them would hold up everybody for seconds.
"""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

Location = tuple[str | int, ...]


class JsonError(ValueError):
    """The text isn't strict JSON. ``places`` lists (location, message) where a place is known."""

    def __init__(self, message: str, places: list[tuple[Location, str]] | None = None) -> None:
        """Say what is wrong, without quoting the text."""
        super().__init__(message)
        self.places = places or []


class _Misnumber:
    """What the parser leaves in place of NaN and infinities."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Repeated(dict[str, Any]):
    """An object in which ``key`` occurred twice."""

    key: str


def loads(data: bytes, *, most_values: int | None = None) -> Any:
    """The value that ``data`` stands for; of at most about ``most_values`` values in all.

    Raises:
        JsonError: saying what is wrong and, where it has one, in which place.
    """
    if most_values is not None and _has_more_values(data, most_values):
        raise JsonError(f"the JSON has more than {most_values} values")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(f"the JSON is not UTF-8: byte {error.start} can't be decoded") from None
    try:
        value = json.loads(
            text,
            parse_constant=_Misnumber,
            parse_float=_finite,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise JsonError(
            f"this is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise JsonError(f"the JSON is nested deeper than {MOST_NESTING} levels") from None
    except ValueError:  # an integer of thousands of digits
        raise JsonError("the JSON has a number with too many digits") from None
    places = list(_faults(value, (), MOST_NESTING))
    if places:
        raise JsonError("the JSON has values that no field can take", places)
    return value


def _has_more_values(data: bytes, most: int) -> bool:
    # Most documents have few separators even with those in their texts: the texts stay unread.
    return _separators(data) > most and _separators(_STRING.sub(b"", data)) > most


def _separators(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _finite(text: str) -> Any:
    number = float(text)
    return number if math.isfinite(number) else _Misnumber("a number beyond all bounds")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    repeated = _Repeated(value)
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            repeated.key = key
            break
        seen.add(key)
    return repeated


def _faults(value: Any, place: Location, depth: int) -> Iterator[tuple[Location, str]]:
    if isinstance(value, _Misnumber):
        yield place, f"must be a finite number, found {value.text}"
    elif isinstance(value, str):
        if not _is_unicode(value):
            yield place, "must not contain lone surrogates (half a UTF-16 pair)"
    elif isinstance(value, dict | list):
        if depth == 0:
            yield place, f"is nested deeper than {MOST_NESTING} levels"
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from _faults(item, (*place, index), depth - 1)
        else:
            yield from _object_faults(value, place, depth)


def _object_faults(
    value: dict[str, Any], place: Location, depth: int
) -> Iterator[tuple[Location, str]]:
    if not all(map(_is_unicode, value)):
        yield place, "a key must not contain lone surrogates (half a UTF-16 pair)"
        return
    if isinstance(value, _Repeated):
        yield (*place, value.key), "occurs twice in its object"
    for key, item in value.items():
        yield from _faults(item, (*place, key), depth - 1)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
