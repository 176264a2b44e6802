import json
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.door.strict_json import MOST_NESTING, MOST_VALUES, JsonError, loads

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(VALUES, st.booleans())
def test_what_is_json_is_read_as_json_reads_it(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert loads(text.encode()) == json.loads(text)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_json_error(data: bytes) -> None:
    try:
        value = loads(data)
    except JsonError:
        return
    assert value == json.loads(data.decode())


FAULTS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e400", '"\\ud800"', '"\\udfff x"']


@given(VALUES, st.sampled_from(FAULTS), st.data())
def test_a_fault_is_found_wherever_it_hides(value: Any, fault: str, data: st.DataObject) -> None:
    hidden, place = _hide(value, data)
    text = json.dumps(hidden).replace('"@fault@"', fault)
    with pytest.raises(JsonError) as caught:
        loads(text.encode())
    assert place in [found for found, _ in caught.value.places]


def _hide(value: Any, data: st.DataObject) -> tuple[Any, tuple[str | int, ...]]:
    """The value with one part, at a drawn place, replaced by the mark of a fault."""
    if isinstance(value, list) and value:
        index = data.draw(st.integers(0, len(value) - 1))
        inner, place = _hide(value[index], data)
        return [*value[:index], inner, *value[index + 1 :]], (index, *place)
    if isinstance(value, dict) and value:
        key = data.draw(st.sampled_from(sorted(value)))
        inner, place = _hide(value[key], data)
        return value | {key: inner}, (key, *place)
    return "@fault@", ()


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_ends_somewhere(opening: str) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]

    def nested(depth: int) -> bytes:
        return (opening * depth + "0" + closing * depth).encode()

    loads(nested(MOST_NESTING))
    for depth in (MOST_NESTING + 1, 900, 100_000):
        with pytest.raises(JsonError, match=r"can take|nested deeper"):
            loads(nested(depth))


def test_a_repeated_key_is_named() -> None:
    with pytest.raises(JsonError) as caught:
        loads(b'{"a": {"b": 1, "c": 2, "b": 3}}')
    assert [place for place, _ in caught.value.places] == [("a", "b")]


def test_errors_never_quote_the_text() -> None:
    for data in (b'{"canary": canary}', b'"canary', b'{"x": "canary", "x": NaN}', b"[1, canary]"):
        with pytest.raises(JsonError) as caught:
            loads(data)
        assert "canary" not in str(caught.value)


def test_large_numbers_are_numbers() -> None:
    assert loads(b"1e308") == 1e308
    assert loads(b"1e-999") == 0.0
    assert loads(b"-0.0") == 0.0
    assert math.copysign(1, loads(b"-0.0")) == -1
    assert loads(b"9" * 300) == int("9" * 300)


@given(VALUES)
def test_what_a_text_contains_is_no_value(value: Any) -> None:
    text = json.dumps({"text": '"[],{},\\"' * 5000 + json.dumps(value) * 3})
    assert loads(text.encode(), most_values=10) == json.loads(text)


@pytest.mark.parametrize("one", ["[]", "{}", "0", '"a,b"', '{"a":1}'])
def test_too_many_values_are_refused_before_they_are_read(one: str) -> None:
    text = "[" + ",".join([one] * (MOST_VALUES * 2)) + "]"
    began = time.process_time()
    with pytest.raises(JsonError, match=str(MOST_VALUES)):
        loads(text.encode(), most_values=MOST_VALUES)
    assert time.process_time() - began < 0.1
    assert len(loads(text.encode())) == MOST_VALUES * 2  # a file of our own may have them
