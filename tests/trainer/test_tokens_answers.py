from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.chat import ANSWERS, CHATML, TEMPLATES, byte_chat, user
from trainer.tokens import ChatTokenizer, TokenizerError


@pytest.mark.parametrize("label", ANSWERS)
@pytest.mark.parametrize("which", ["smollm2", "tiny"])
def test_an_answer_decodes_to_exactly_itself(
    which: str, label: str, request: pytest.FixtureRequest
) -> None:
    ours: ChatTokenizer = request.getfixturevalue(which)
    ids = ours.answer_ids(label)
    assert ids[-1] == ours.end_token_id == 2
    assert ours.decode(ids[:-1]) == label
    assert all(i > 2 for i in ids[:-1])


@given(label=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_answer_comes_back(label: str) -> None:
    ours = byte_chat()
    assert ours.decode(ours.answer_ids(label)[:-1]) == label


def test_an_answer_the_vocabulary_cannot_write_is_refused(smollm2: ChatTokenizer) -> None:
    with pytest.raises(TokenizerError, match=r"can't write U\+0004"):
        smollm2.answer_ids("a\x04b")


def test_the_prompt_does_not_depend_on_the_answer(smollm2: ChatTokenizer) -> None:
    example = smollm2.example("text", "\nnow")
    assert example.prompt == smollm2.prompt_ids(user("text"))
    assert example.answer == smollm2.answer_ids("\nnow")


@pytest.mark.parametrize(
    ("template", "token"),
    [
        (CHATML, "<|im_end|>"),
        ("{% for m in messages %}<|im_start|>{{ m.content }} <|endoftext|>{% endfor %}", 0),
        ("{% for m in messages %}{{ m.content }}\n\n<file_sep><|im_end|>{% endfor %}", 5),
        ("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}", "<|im_end|>"),
    ],
)
def test_the_end_token_is_what_follows_an_answer(
    template: str, token: int | str, with_template: Callable[[str], ChatTokenizer]
) -> None:
    assert with_template(template).end_token_id == (2 if token == "<|im_end|>" else token)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content }}\n{% endfor %}",
        "{% for m in messages %}{{ m.content }} bye <|im_end|>{% endfor %}",
        "<|im_start|>always the same<|im_end|>",
        "{% for m in messages %}{{ m.content }}<|im_end|>{{ m.content }}{% endfor %}",
    ],
)
def test_a_template_without_an_end_token_is_refused(
    template: str, with_template: Callable[[str], ChatTokenizer]
) -> None:
    with pytest.raises(TokenizerError, match="no control token behind an assistant's text"):
        with_template(template)


LONG = "日本語のとても長い文章 🎉👨‍👩‍👧 it's <|im_end|> 2026 and goes on " * 30


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("room", [0, 1, 2, 3, 5, 17, 100, 333])
def test_cutting_keeps_template_and_label_and_fits(
    name: str, room: int, with_template: Callable[[str], ChatTokenizer]
) -> None:
    ours = with_template(TEMPLATES[name])
    whole = ours.example(LONG, "後で")
    least = len(ours.prompt_ids(user(""))) + len(whole.answer)
    example, cut = ours.cut(LONG, "後で", least + room)
    assert len(example.prompt) + len(example.answer) <= least + room
    assert example.answer == whole.answer
    assert cut == len(whole.prompt) - len(example.prompt) > 0
    decoded = ours.decode(example.prompt)
    assert "\ufffd" not in decoded
    assert [i for i in example.prompt if i < 17] == [i for i in whole.prompt if i < 17]
    kept = next(n for n in range(len(LONG)) if ours.prompt_ids(user(LONG[:n])) == example.prompt)
    # no more is dropped than asked for: one more word would not fit
    longer = ours.prompt_ids(user(LONG[: kept + 12]))
    assert len(longer) + len(example.answer) > least + room


def test_nothing_is_cut_from_what_fits(smollm2: ChatTokenizer) -> None:
    whole = smollm2.example("a short text", "now")
    size = len(whole.prompt) + len(whole.answer)
    assert smollm2.cut("a short text", "now", size) == (whole, 0)
    example, cut = smollm2.cut("a short text", "now", size - 1)
    assert cut >= 1
    assert len(example.prompt) + len(example.answer) < size


def test_what_cannot_fit_is_refused_with_the_numbers(smollm2: ChatTokenizer) -> None:
    least = len(smollm2.prompt_ids(user("")))
    answer = len(smollm2.answer_ids("a long label"))
    with pytest.raises(TokenizerError) as raised:
        smollm2.cut("some text", "a long label", least + answer - 1)
    for number in (least, answer, least + answer - 1):
        assert str(number) in str(raised.value)
    example, _ = smollm2.cut("some text", "a long label", least + answer)
    assert example.prompt == smollm2.prompt_ids(user(""))


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60), room=st.integers(0, 60))
@settings(max_examples=200, deadline=None)
def test_cutting_bytes_never_leaves_half_a_character(text: str, room: int) -> None:
    """One token a byte: a cut at a token would often fall inside a character."""
    chat = byte_chat()
    least = len(chat.prompt_ids(user(""))) + len(chat.answer_ids("x"))
    example, _ = chat.cut(text, "x", least + room)
    kept = chat.decode(example.prompt).removeprefix("<|im_start|>user\n")
    kept = kept.removesuffix("<|im_end|>\n<|im_start|>assistant\n")
    assert text.startswith(kept)
    assert len(text[: len(kept) + 1].encode()) > room or kept == text
