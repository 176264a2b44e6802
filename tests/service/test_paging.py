"""Cursors as a codec."""

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.door import cursors
from service.door.problems import Refusal

KIND = st.sampled_from(["adapters", "examples", "versions", "runs"])
NAME = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)


@given(KIND, st.integers(0, 2**63 - 1))
def test_a_number_comes_back(kind: str, position: int) -> None:
    cursor = cursors.encode(kind, position)
    assert cursors.decode(kind, cursor) == position
    assert set(cursor) <= set(string.ascii_letters + string.digits + "-_")
    assert len(cursor) <= 200


@given(KIND, NAME)
def test_a_name_comes_back(kind: str, position: str) -> None:
    assert cursors.decode_text(kind, cursors.encode(kind, position)) == position
    assert len(cursors.encode(kind, position)) <= 200


def refused(kind: str, cursor: str) -> None:
    for decode in (cursors.decode, cursors.decode_text):
        with pytest.raises(Refusal) as caught:
            decode(kind, cursor)
        assert caught.value.status_code == 422
        assert [error.field for error in caught.value.errors] == ["query.cursor"]


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text: str) -> None:
    refused("examples", text)


@given(st.integers(0, 2**63 - 1), st.data())
def test_a_changed_cursor_is_refused_or_another_cursor(position: int, data: st.DataObject) -> None:
    """Base64 has several spellings of the same bytes; only ours may be taken."""
    cursor = cursors.encode("examples", position)
    place = data.draw(st.integers(0, len(cursor) - 1))
    letter = data.draw(st.sampled_from(string.ascii_letters + string.digits + "-_=+/ \n"))
    changed = cursor[:place] + letter + cursor[place + 1 :]
    try:
        found = cursors.decode("examples", changed)
    except Refusal:
        return
    assert cursors.encode("examples", found) == changed


@pytest.mark.parametrize(
    "text", ["5", "runs:5", "examples", "examples:-1", "examples: 5", "examples:05", "examples:",
             "examples:9223372036854775808", "examples:\N{ARABIC-INDIC DIGIT FIVE}", "examples:1_0",
             "examples:5\n"],
)  # fmt: skip
def test_a_forged_position_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        cursors.decode("examples", base64.urlsafe_b64encode(text.encode()).decode().rstrip("="))


def test_a_cursor_of_another_list_is_refused() -> None:
    refused("examples", cursors.encode("runs", 5))
    refused("example", cursors.encode("examples", 5))
