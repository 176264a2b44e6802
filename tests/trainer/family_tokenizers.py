"""Small vocabularies under each family's real splitting, and `transformers`' tokenizers of them.

The real vocabularies can't be had here; pattern, normaliser and settings are those of the models.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import LlamaTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from tests.trainer.texts import package_texts, random_texts

QWEN2_TEMPLATE = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + "
    "'<|im_end|>\n' }}{%- else %}{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n'"
    " }}{%- endif %}{%- for message in messages %}{%- if message.role == 'user' or "
    "(message.role == 'system' and not loop.first) or message.role == 'assistant' %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"
)
LLAMA3_TEMPLATE = (
    "{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{%- endif %}"
)
LLAMA2_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + "
    "message['content'].strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + "
    "message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
TINYLLAMA_TEMPLATE = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
    "{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n"
    "{{ '<|assistant|>\n' + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
    "{% endfor %}"
)

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
QWEN2_PATTERN = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST


@dataclass(frozen=True)
class FamilyTokenizer:
    """A tokenizer of `transformers`, and what a GGUF of the same model says of it."""

    oracle: Any
    template: str
    end_token: str
    gguf: dict[str, Any]
    """The keys `tokenizer.…`; empty where a GGUF of it can't be read."""


def line_ends(seed: int, count: int) -> Iterator[str]:
    """Line ends of all systems and all kinds of blanks, in any order, between a few words."""
    chance = random.Random(seed)
    ends = ("\r", "\n", "\r\n", "\t", "\v", "\x85", "\u2028", "\u2003", " ", " ", " ")
    parts = (*ends, "a", "Bc,", "12", "?!", "\u0301", "'LL")
    for _ in range(count):
        yield "".join(chance.choices(parts, k=chance.randint(2, 30)))


def _corpus() -> list[str]:
    return [*package_texts(11, 400), *random_texts(12, 600), *line_ends(13, 600)]


def _pieces(*steps: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*steps, byte_level])


def _byte_level(
    pattern: str, normalizer: normalizers.Normalizer | None
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges learned under a splitting."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = _pieces(pre_tokenizers.Split(Regex(pattern), "isolated"))
    trainer = trainers.BpeTrainer(
        vocab_size=1800,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [(left, right) for left, right in model["merges"]]


def _gguf(
    pre: str,
    vocabulary: dict[str, int],
    merges: list[tuple[str, str]],
    control: list[str],
    template: str,
    **special: str,
) -> dict[str, Any]:
    tokens = [*sorted(vocabulary, key=lambda token: vocabulary[token]), *control]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(vocabulary) + [3] * len(control),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
        "tokenizer.chat_template": template,
        **{f"tokenizer.ggml.{name}_token_id": tokens.index(text) for name, text in special.items()},
    }


@cache
def qwen2() -> FamilyTokenizer:
    """Qwen2, 2.5 and 3, with transformers' own class."""
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary, merges = _byte_level(QWEN2_PATTERN, normalizers.NFC())
    oracle = Qwen2Tokenizer(
        vocab=dict(vocabulary),
        merges=list(merges),
        unk_token=None,
        bos_token=None,
        eos_token=None,
        pad_token=None,
    )
    oracle.add_special_tokens({"additional_special_tokens": control})
    oracle.eos_token, oracle.pad_token = "<|im_end|>", "<|endoftext|>"
    oracle.chat_template = QWEN2_TEMPLATE
    fields = _gguf(
        "qwen2",
        vocabulary,
        merges,
        control,
        QWEN2_TEMPLATE,
        eos="<|im_end|>",
        padding="<|endoftext|>",
    )
    return FamilyTokenizer(oracle, QWEN2_TEMPLATE, "<|im_end|>", fields)


@cache
def llama3() -> FamilyTokenizer:
    """Llama 3.x: whole pieces that no merges lead to are tokens all the same."""
    control = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>"]
    control += ["<|end_header_id|>", "<|eot_id|>"]
    vocabulary, merges = _byte_level(LLAMA3_PATTERN, None)
    used = {part for merge in merges for part in merge}
    last = [left + right for left, right in merges if left + right not in used]
    unreachable = set(last[::3])
    merges = [(left, right) for left, right in merges if left + right not in unreachable]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = _pieces(pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in control]
    )
    begin = ("<|begin_of_text|>", len(vocabulary))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[begin]
    )
    oracle = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>"
    )
    oracle.chat_template = LLAMA3_TEMPLATE
    fields = _gguf(
        "llama-bpe",
        vocabulary,
        merges,
        control,
        LLAMA3_TEMPLATE,
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
    )
    return FamilyTokenizer(oracle, LLAMA3_TEMPLATE, "<|eot_id|>", fields)


@cache
def _sentencepiece() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges as Llama 2's: three control tokens, all bytes, then pieces with ▁."""
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=2200, special_tokens=first, limit_alphabet=300, show_progress=False
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [(left, right) for left, right in model["merges"]]


@cache
def llama2() -> FamilyTokenizer:
    """Llama 2 and TinyLlama, as their tokenizer.json has it: ▁ before each stretch of text."""
    vocabulary, merges = _sentencepiece()
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in ("<unk>", "<s>", "</s>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    oracle = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    oracle.chat_template = LLAMA2_TEMPLATE
    return FamilyTokenizer(oracle, LLAMA2_TEMPLATE, "</s>", {})


@cache
def tinyllama() -> FamilyTokenizer:
    """The same vocabulary as transformers 5 makes and saves it, under TinyLlama's template."""
    vocabulary, merges = _sentencepiece()
    oracle = LlamaTokenizer(vocab=dict(vocabulary), merges=list(merges))
    oracle.chat_template = TINYLLAMA_TEMPLATE
    return FamilyTokenizer(oracle, TINYLLAMA_TEMPLATE, "</s>", {})


TOKENIZERS = {"qwen2": qwen2, "llama 3": llama3, "llama 2": llama2, "tinyllama": tinyllama}
