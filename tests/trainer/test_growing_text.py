"""A text that is given out while it grows: whole code points, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.chat import byte_chat
from trainer.predict.growing_text import GrowingText


def as_bytes(ids: Sequence[int]) -> str:
    return bytes(ids).decode(errors="replace")


def grown(text: str, stop: Sequence[str]) -> tuple[list[str], GrowingText]:
    """A byte a token, until it stops, as a text is written."""
    growing = GrowingText(as_bytes, stop)
    pieces = []
    for byte in text.encode():
        pieces.append(growing.add(byte))
        if growing.stopped:
            break
    pieces.append(growing.finish())
    return pieces, growing


def cut(text: str, stop: Sequence[str]) -> str:
    """Up to the stop string that is whole first, the longest of those that are at the same time."""
    for end in range(len(text) + 1):
        starts = [end - len(one) for one in stop if one and text[:end].endswith(one)]
        if starts:
            return text[: min(starts)]
    return text


TEXTS = st.text(st.sampled_from("ab\n🎉é日"), max_size=30)


@given(TEXTS, st.lists(st.text(st.sampled_from("ab🎉é"), max_size=4), max_size=3))
def test_the_pieces_are_the_text_up_to_the_first_stop(text: str, stop: list[str]) -> None:
    pieces, growing = grown(text, stop)
    assert "".join(pieces) == growing.text == cut(text, stop)
    assert growing.stopped == (cut(text, stop) != text or any(text.endswith(s) for s in stop if s))


@given(TEXTS, st.text(st.sampled_from("ab"), min_size=1, max_size=4))
def test_what_is_held_back_is_only_what_could_begin_a_stop(text: str, stop: str) -> None:
    growing = GrowingText(as_bytes, [stop])
    for end, byte in enumerate(text.encode(), 1):
        growing.add(byte)
        if growing.stopped:
            return
        whole = text.encode()[:end].decode(errors="ignore")
        held = whole[len(growing.text) :]
        assert whole.startswith(growing.text)
        assert stop.startswith(held)
        assert held != stop


def test_code_points_come_whole() -> None:
    growing = GrowingText(as_bytes, [])
    assert [growing.add(byte) for byte in "é🎉".encode()] == ["", "é", "", "", "", "🎉"]


def test_bytes_that_are_no_text_are_told_when_that_is_sure() -> None:
    growing = GrowingText(as_bytes, [])
    assert [growing.add(byte) for byte in (0xF0, 0x9F, 0x61)] == ["", "", "\ufffda"]
    assert growing.add(0xF0) == ""
    assert growing.finish() == "\ufffd"


def test_a_stop_string_may_come_in_one_token_with_what_follows() -> None:
    growing = GrowingText(lambda ids: "".join(["ab", "c END d", "e"][i] for i in ids), ["END"])
    assert [growing.add(0), growing.add(1)] == ["ab", "c "]
    assert growing.stopped
    assert growing.finish() == ""
    assert growing.text == "abc "


@pytest.mark.parametrize("text", ["日本語 🎉 é", "plain", "a\n\nb  c"])
def test_with_a_tokenizer(text: str) -> None:
    chat = byte_chat()
    growing = GrowingText(chat.decode, [])
    pieces = [growing.add(token) for token in chat.answer_ids(text)[:-1]]
    assert "".join([*pieces, growing.finish()]) == text
    assert not any("\ufffd" in piece for piece in pieces)
