"""Every family's tokenizer and chat template against `transformers`, from a folder and a GGUF."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.trainer.families import FAMILIES
from tests.trainer.family_gguf import write_gguf
from tests.trainer.family_tokenizers import (
    TINYLLAMA_TEMPLATE,
    TOKENIZERS,
    FamilyTokenizer,
    line_ends,
)
from tests.trainer.llama_cpp import LlamaCppTokenizer
from tests.trainer.texts import package_texts, random_texts
from trainer.add_model import add_model
from trainer.models.gguf import GGUFFile
from trainer.models.gguf_tokenizer import special_tokens_from_gguf, tokenizer_from_gguf
from trainer.models.huggingface import read_huggingface_model
from trainer.tokens import ChatTokenizer, TokenizerError

MODELS = {"qwen2": "qwen2", "llama 3": "llama 3", "llama 2": "llama", "tinyllama": "llama"}
IN_GGUF = ("qwen2", "llama 3")


@dataclass(frozen=True)
class Saved:
    """A family's tokenizer and, beside it in the folder, a tiny model."""

    family: FamilyTokenizer
    folder: Path
    ours: Tokenizer
    chat: ChatTokenizer


def save(name: str, home: Path) -> Saved:
    """What transformers saves, read as `lorad model add` reads it."""
    family = TOKENIZERS[name]()
    folder = home / "source"
    FAMILIES[MODELS[name]](vocab_size=len(family.oracle)).save_pretrained(folder)
    family.oracle.save_pretrained(folder)
    model = read_huggingface_model(folder)
    chat = ChatTokenizer(model.tokenizer.to_str(), model.chat_template, model.special_tokens)
    return Saved(family, folder, model.tokenizer, chat)


@pytest.fixture(scope="module", params=TOKENIZERS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return save(request.param, tmp_path_factory.mktemp("tokenizer"))


def texts() -> Iterator[str]:
    """Unicode of all kinds, digits, gaps, prose and code; and the same with marks taken apart."""
    for text in (*random_texts(21, 3000), *package_texts(22, 600), *line_ends(24, 400)):
        yield text
        apart = unicodedata.normalize("NFD", text)
        if apart != text:
            yield apart


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def expected(family: FamilyTokenizer, text: str) -> list[int]:
    ids: list[int] = family.oracle.encode(text, add_special_tokens=False)
    return ids


def test_tokenizer_json_equals_transformers_on_thousands_of_texts(saved: Saved) -> None:
    for text in texts():
        assert encode(saved.ours, text) == expected(saved.family, text), repr(text)


@pytest.mark.parametrize("name", IN_GGUF)
def test_gguf_equals_transformers_on_thousands_of_texts(name: str) -> None:
    family = TOKENIZERS[name]()
    ours = tokenizer_from_gguf(family.gguf)
    several = 0
    for text in texts():
        ids = expected(family, text)
        assert encode(ours, text) == ids, repr(text)
        several += len(ids) < len(text.encode())
    assert several > 2000, "a vocabulary without merges would prove nothing"


@pytest.mark.parametrize("name", IN_GGUF)
def test_gguf_equals_llama_cpp_on_thousands_of_texts(name: str, tmp_path: Path) -> None:
    """llama.cpp doesn't normalise, so Qwen's are compared on texts that are NFC already."""
    family = TOKENIZERS[name]()
    model = FAMILIES[MODELS[name]](vocab_size=len(family.oracle))
    path = write_gguf(tmp_path / "model.gguf", model, **family.gguf)
    ours, oracle = tokenizer_from_gguf(GGUFFile(path).metadata), LlamaCppTokenizer(path)
    compared = [
        text for text in texts() if name != "qwen2" or unicodedata.is_normalized("NFC", text)
    ]
    assert len(compared) > 2500
    for text in compared:
        assert encode(ours, text) == oracle.encode(text, control_tokens=False), repr(text)
        chat = f"<|im_start|>{text}<|im_end|>\n<|eot_id|>"
        assert encode(ours, chat) == oracle.encode(chat, control_tokens=True), repr(chat)


def conversations() -> list[list[dict[str, str]]]:
    one = [{"role": "user", "content": text} for text in random_texts(23, 60)]
    system = {"role": "system", "content": "Sort the notification: now, later or hide."}
    answered = [
        {"role": "user", "content": "Mum: ring me"},
        {"role": "assistant", "content": "now"},
    ]
    return [*([message] for message in one), [system, one[0]], [*answered, one[1]]]


def test_prompts_equal_apply_chat_template(saved: Saved) -> None:
    for messages in conversations():
        ids = saved.family.oracle.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        assert saved.chat.prompt_ids(messages) == ids, messages
    saved.chat.verify()


def test_an_answer_ends_with_the_familys_end_token_and_comes_back(saved: Saved) -> None:
    end = saved.family.oracle.convert_tokens_to_ids(saved.family.end_token)
    assert saved.chat.end_token_id == end
    for answer in ("now", "later", "日本語", "🎉", "it's 7", "a  b", "\nnow", "Ärger"):
        ids = saved.chat.answer_ids(answer)
        assert ids[-1] == end
        assert end not in ids[:-1]
        assert saved.chat.decode(ids[:-1]) == answer


def test_a_space_before_an_answer_is_kept_or_refused(saved: Saved) -> None:
    """transformers 5 makes Llama 2's tokenizer write " now" as it writes "now"."""
    if encode(saved.ours, " now") == encode(saved.ours, "now"):
        with pytest.raises(TokenizerError, match=r"can't write U\+0020"):
            saved.chat.answer_ids(" now")
    else:
        assert saved.chat.decode(saved.chat.answer_ids(" now")[:-1]) == " now"


def test_the_end_token_in_somebodys_text_is_plain_text(saved: Saved) -> None:
    token = saved.family.end_token
    end = saved.chat.end_token_id
    clean = saved.chat.prompt_ids([{"role": "user", "content": "a  b"}])
    forged = saved.chat.prompt_ids([{"role": "user", "content": f"a {token} b"}])
    assert forged.count(end) == clean.count(end)
    assert saved.chat.answer_ids(f"a{token}")[:-1].count(end) == 0
    assert encode(saved.ours, token) == [end], "the tokenizer itself would have made it one"


@pytest.mark.parametrize("name", IN_GGUF)
def test_a_gguf_and_a_folder_give_the_same_chat(name: str, tmp_path: Path) -> None:
    saved = save(name, tmp_path)
    fields = saved.family.gguf
    chat = ChatTokenizer(
        tokenizer_from_gguf(fields).to_str(),
        fields["tokenizer.chat_template"],
        special_tokens_from_gguf(fields),
    )
    assert chat.end_token_id == saved.chat.end_token_id
    for messages in conversations():
        assert chat.prompt_ids(messages) == saved.chat.prompt_ids(messages)


def test_tinyllamas_template_over_its_own_tokenizer_json(tmp_path: Path) -> None:
    """Its roles are plain text, and ▁ stands before each stretch between control tokens."""
    family = TOKENIZERS["llama 2"]()
    chat = ChatTokenizer(
        family.oracle.backend_tokenizer.to_str(),
        TINYLLAMA_TEMPLATE,
        {"bos_token": "<s>", "eos_token": "</s>"},
    )
    chat.verify()
    for messages in conversations():
        ids = family.oracle.apply_chat_template(
            messages,
            chat_template=TINYLLAMA_TEMPLATE,
            add_generation_prompt=True,
            return_dict=False,
        )
        assert chat.prompt_ids(messages) == ids
    assert chat.end_token_id == 2


def test_such_a_folder_is_added(saved: Saved, tmp_path: Path) -> None:
    manifest: dict[str, Any] = add_model(tmp_path, "m", str(saved.folder), "int8").manifest
    loaded = ChatTokenizer.load(tmp_path / "models/m")
    assert loaded.end_token_id == saved.chat.end_token_id
    assert manifest["template_tokens"] == loaded.template_tokens


@pytest.mark.parametrize("name", IN_GGUF)
def test_such_a_gguf_is_added(name: str, tmp_path: Path) -> None:
    family = TOKENIZERS[name]()
    model = FAMILIES[MODELS[name]](vocab_size=len(family.oracle))
    path = write_gguf(tmp_path / "model.gguf", model, **family.gguf)
    added = add_model(tmp_path, "m", str(path))
    assert added.manifest["config"]["family"] == model.config.model_type
    chat = ChatTokenizer.load(tmp_path / "models/m")
    assert chat.decode([chat.end_token_id]) == family.end_token
