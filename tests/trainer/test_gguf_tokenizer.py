import unicodedata
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.trainer.chat import gpt2_alphabet
from tests.trainer.llama_cpp import LlamaCppTokenizer
from tests.trainer.texts import package_texts, random_texts
from trainer.models.config import UnsupportedModelError
from trainer.models.gguf import GGUFFile
from trainer.models.gguf_tokenizer import special_tokens_from_gguf, tokenizer_from_gguf


@pytest.fixture(scope="module")
def metadata(smollm2_gguf: Path) -> dict[str, object]:
    return dict(GGUFFile(smollm2_gguf).metadata)


@pytest.fixture(scope="module")
def tokenizer(metadata: dict[str, object]) -> Tokenizer:
    return tokenizer_from_gguf(metadata)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module")
def unwritable(tokenizer: Tokenizer) -> set[int]:
    """Bytes that SmolLM2's vocabulary has no token for.

    Six control characters, bytes that never occur in UTF-8, and F1 and F2, which begin code points
    from U+40000 on, none of them assigned.
    """
    missing = {
        byte for byte, text in gpt2_alphabet().items() if tokenizer.token_to_id(text) is None
    }
    assert {0x04, 0xF1, 0xF2} < missing
    assert len(missing) == 21
    return missing


def test_equals_llama_cpp_on_thousands_of_texts(
    tokenizer: Tokenizer, smollm2_gguf: Path, unwritable: set[int]
) -> None:
    """Where a byte has no token both drop it, but only llama.cpp keeps its neighbours from merging;
    `tokenizers`, which trained and defines this vocabulary, merges across it. So do we."""
    oracle = LlamaCppTokenizer(smollm2_gguf)
    assert oracle.size == tokenizer.get_vocab_size()
    texts = [*random_texts(1, 4000), *package_texts(2, 1500)]
    compared = [text for text in texts if not unwritable.intersection(text.encode())]
    assert len(compared) > 5000
    for text in compared:
        assert encode(tokenizer, text) == oracle.encode(text, control_tokens=False), repr(text)


def test_control_tokens_match_as_llama_cpp_matches_them(
    tokenizer: Tokenizer, smollm2_gguf: Path
) -> None:
    oracle = LlamaCppTokenizer(smollm2_gguf)
    for text in package_texts(3, 200):
        chat = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<file_sep><|im_end|"
        assert encode(tokenizer, chat) == oracle.encode(chat, control_tokens=True)


@pytest.mark.slow
def test_equals_transformers_where_transformers_is_right(
    tokenizer: Tokenizer, smollm2_gguf: Path
) -> None:
    """transformers 5 rebuilds this tokenizer from GGUF without the rule "each digit alone", which
    llama.cpp (above) has, as SmolLM2's own tokenizer.json does. Its other rules are the same."""
    transformers = pytest.importorskip("transformers")
    oracle = transformers.AutoTokenizer.from_pretrained(
        str(smollm2_gguf.parent), gguf_file=smollm2_gguf.name
    )
    for text in [*random_texts(4, 2000), *package_texts(5, 500)]:
        plain = "".join(c for c in text if unicodedata.category(c)[0] != "N")
        assert encode(tokenizer, plain) == oracle(plain, add_special_tokens=False)["input_ids"]


def test_each_digit_is_a_token_of_its_own(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("at 2026 x").tokens == ["at", "Ġ", "2", "0", "2", "6", "Ġx"]


def test_decoding_gives_the_text_back(tokenizer: Tokenizer, unwritable: set[int]) -> None:
    for text in random_texts(6, 2000):
        if not unwritable.intersection(text.encode()):
            assert tokenizer.decode(encode(tokenizer, text), skip_special_tokens=False) == text


def test_the_control_tokens_are_smollm2s(tokenizer: Tokenizer) -> None:
    added = tokenizer.get_added_tokens_decoder()
    assert sorted(added) == list(range(17))
    assert added[2].content == "<|im_end|>"
    assert all(token.special for token in added.values())


def test_special_tokens_are_named_by_their_text(metadata: dict[str, object]) -> None:
    assert special_tokens_from_gguf(metadata) == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }


SMALL = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<s>", "a", "b", "ab"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
}


def test_a_small_vocabulary_works() -> None:
    assert encode(tokenizer_from_gguf(SMALL), "ab<s>ba") == [3, 0, 2, 1]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.model is 'llama'"),
        ({"tokenizer.ggml.model": None}, "tokenizer.ggml.model is None"),
        (
            {"tokenizer.ggml.pre": "tekken"},
            "tokenizer.ggml.pre is 'tekken'.* smollm, llama-bpe, qwen2",
        ),
        ({"tokenizer.ggml.pre": ["smollm"]}, "tokenizer.ggml.pre"),
        ({"tokenizer.ggml.tokens": []}, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": [1, 2, 3, 4]}, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": ["<s>", "a", "b", "a"]}, "holds 'a' twice"),
        ({"tokenizer.ggml.token_type": [3, 1, 1]}, "tokenizer.ggml.token_type"),
        ({"tokenizer.ggml.token_type": [3, 1, 1, 9]}, r"token_type\[3\] is 9"),
        ({"tokenizer.ggml.merges": ["a c"]}, r"merges\[0\] is 'a c'"),
        ({"tokenizer.ggml.merges": ["b a"]}, r"merges\[0\] is 'b a'"),
        ({"tokenizer.ggml.merges": ["ab"]}, r"merges\[0\] is 'ab'"),
        ({"tokenizer.ggml.merges": None}, "tokenizer.ggml.merges"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        tokenizer_from_gguf(SMALL | change)


@pytest.mark.parametrize("number", [4, -1, True, "2"])
def test_a_special_token_id_outside_the_vocabulary_is_refused(number: object) -> None:
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.bos_token_id"):
        special_tokens_from_gguf(SMALL | {"tokenizer.ggml.bos_token_id": number})
