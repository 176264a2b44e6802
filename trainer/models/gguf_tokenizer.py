"""A `tokenizers` tokenizer rebuilt from GGUF metadata.

GGUF keeps vocabulary, merges and token types, but of the text splitting only a name
(`tokenizer.ggml.pre`). Each name we accept has been compared with llama.cpp's own splitting, and
with the tokenizer in transformers, on thousands of texts; any other is refused, because a wrong
split trains on the wrong ids silently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from trainer.models.config import UnsupportedModelError

_SPECIAL_TOKEN_KEYS: Mapping[str, str] = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class _Splitting:
    """What a name in `tokenizer.ggml.pre` stands for, in the model's own tokenizer.json."""

    pre_tokenizer: pre_tokenizers.PreTokenizer
    normalizer: normalizers.Normalizer | None = None
    ignore_merges: bool = False
    """Whether a piece that is a token as a whole stays one, even where no merges lead to it."""


def _pattern(digits: str) -> pre_tokenizers.PreTokenizer:
    """The pattern that Llama 3 and Qwen2 share but for how many `digits` stay together.

    By alternative: an English contraction; letters, with the character before them; digits; signs,
    with the space before and the line ends behind them; line ends; blanks up to the last; blanks.
    """
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
        r"|[^\r\n\p{L}\p{N}]?\p{L}+"
        rf"|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+"
        r"|\s+(?!\S)"
        r"|\s+"
    )
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _smollm() -> _Splitting:
    """SmolLM and SmolLM2: every digit alone, then GPT-2's pattern on bytes."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    pattern = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return _Splitting(pre_tokenizers.Sequence([digits, pattern]))


def _llama3() -> _Splitting:
    """Llama 3.x: up to three digits together."""
    return _Splitting(_pattern(r"\p{N}{1,3}"), ignore_merges=True)


def _qwen2() -> _Splitting:
    """Qwen2, 2.5 and 3: every digit alone, characters composed (NFC; llama.cpp doesn't)."""
    return _Splitting(_pattern(r"\p{N}"), normalizers.NFC())


_SPLITTINGS: Mapping[str, Callable[[], _Splitting]] = {
    "smollm": _smollm,
    "llama-bpe": _llama3,
    "qwen2": _qwen2,
}


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The byte-level BPE tokenizer of a GGUF file.

    Raises UnsupportedModelError naming the key that is missing, damaged or of another kind.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise UnsupportedModelError(
            f"tokenizer.ggml.model is {kind!r}; this version rebuilds only 'gpt2' (byte-level BPE) "
            "tokenizers from GGUF: use the model's Hugging Face folder instead"
        )
    pre = metadata.get("tokenizer.ggml.pre")
    if not isinstance(pre, str) or pre not in _SPLITTINGS:
        raise UnsupportedModelError(
            f"tokenizer.ggml.pre is {pre!r}; this version knows {', '.join(_SPLITTINGS)}: "
            "use the model's Hugging Face folder instead"
        )
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        repeated = next(token for number, token in enumerate(tokens) if vocabulary[token] != number)
        raise UnsupportedModelError(f"tokenizer.ggml.tokens holds {repeated!r} twice")
    splitting = _SPLITTINGS[pre]()
    merges = _merges(metadata, vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=splitting.ignore_merges))
    tokenizer.normalizer = splitting.normalizer
    tokenizer.pre_tokenizer = splitting.pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    _add_control_tokens(tokenizer, tokens, metadata)
    return tokenizer


def special_tokens_from_gguf(metadata: Mapping[str, Any]) -> dict[str, str | None]:
    """The tokens a chat template may name, by their text; null where the file gives none."""
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    named: dict[str, str | None] = {}
    for name, key in _SPECIAL_TOKEN_KEYS.items():
        number = metadata.get(key)
        if number is not None and not (type(number) is int and 0 <= number < len(tokens)):
            raise UnsupportedModelError(
                f"{key} is {number!r}; expected a token id below {len(tokens)}"
            )
        named[name] = None if number is None else tokens[number]
    return named


def _merges(metadata: Mapping[str, Any], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    merges = []
    for index, merge in enumerate(_strings(metadata, "tokenizer.ggml.merges")):
        left, space, right = merge.partition(" ")
        if not space or any(part not in vocabulary for part in (left, right, left + right)):
            raise UnsupportedModelError(
                f"tokenizer.ggml.merges[{index}] is {merge!r}; expected two tokens of "
                "tokenizer.ggml.tokens that join to a third"
            )
        merges.append((left, right))
    return merges


def _add_control_tokens(
    tokenizer: Tokenizer, tokens: list[str], metadata: Mapping[str, Any]
) -> None:
    """Make control and user-defined tokens match as a whole, as llama.cpp does."""
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(types, list) or len(types) != len(tokens):
        raise UnsupportedModelError(
            f"tokenizer.ggml.token_type is missing or not as long as tokenizer.ggml.tokens "
            f"({len(tokens)})"
        )
    for number, kind in enumerate(types):
        if kind not in (_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED):
            raise UnsupportedModelError(
                f"tokenizer.ggml.token_type[{number}] is {kind!r}; "
                "a byte-level BPE has no such type"
            )
    tokenizer.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, kind in zip(tokens, types, strict=True)
            if kind in (_UNKNOWN, _CONTROL)
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False, special=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == _USER_DEFINED
        ]
    )


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """The non-empty list of strings under `key`."""
    values = metadata.get(key)
    if not isinstance(values, list) or not values or not isinstance(values[0], str):
        raise UnsupportedModelError(f"{key} is missing or no list of strings")
    return values
