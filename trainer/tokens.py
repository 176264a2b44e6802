"""Text to token ids and back, through the model's own chat template.

A prompt's ids are those of `transformers`' `apply_chat_template`, with one difference: the text of
a control token inside what a person wrote (`<|im_end|>` in a message, in a label) stays plain text:

    messages --mask--> render --name the template's control tokens--> unmask --encode--> ids

`mask` puts a stand-in character where a message contains a control token's text, so every such text
in the rendered conversation is the template's own. Those get secret names, and the encoder is the
model's tokenizer with its control tokens known by these names only. The conversation is still
encoded as one string, so merges across the borders of template and content are the model's.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from trainer.models.chat_template import ChatTemplate

_ROLES = ("system", "user", "assistant", "tool")
_PRIVATE_USE = range(0xF0000, 0xFFFFE)
_TRIALS = ("", "word", " two  spaces ", "\n\nline\n", "it's 2026, 日本語 🎉\u200d", "<a> [b] |c|>")
_TRIAL_ANSWERS = ("now", "\nlater", "日本語", "🎉", "it's 7")


class TokenizerError(ValueError):
    """A tokenizer, its chat template or a text can't be turned into ids; says why."""


@dataclass(frozen=True)
class EncodedExample:
    """Token ids of one example: the prompt carries no loss, the answer with its end token does."""

    prompt: list[int]
    answer: list[int]


class ChatTokenizer:
    """A model's tokenizer and chat template.

    `end_token_id` is the token the template puts after an assistant's text. `end_token_ids`: what
    a text that the model writes ends before, this or any other special token; none of them is text.
    Raises TokenizerError or ChatTemplateError if the two can't be used for training.
    """

    end_token_id: int
    end_token_ids: set[int]

    def __init__(
        self,
        tokenizer_json: str,
        chat_template: str,
        special_tokens: Mapping[str, str | None],
    ) -> None:
        """Take the text of a tokenizer.json, the Jinja text and the names the template may use."""
        self._tokenizer = _without_padding(Tokenizer.from_str(tokenizer_json))
        self._control_ids = {
            token.content: number
            for number, token in self._tokenizer.get_added_tokens_decoder().items()
            if _is_control(token.content, token.special)
        }
        self._encoder, self._names = _renamed(tokenizer_json, self._control_ids)
        self._control = _any_of(self._control_ids)
        self._longest = max(map(len, self._control_ids), default=0)
        self._template = ChatTemplate(chat_template, special_tokens)
        self._template_characters = frozenset(chat_template)
        self.end_token_id = self._find_end_token()
        special = self._tokenizer.get_added_tokens_decoder().items()
        self.end_token_ids = {self.end_token_id, *(n for n, token in special if token.special)}

    @classmethod
    def load(cls, model_dir: Path) -> "ChatTokenizer":
        """Read manifest.json and tokenizer.json of an added model.

        Raises TokenizerError if tokenizer.json isn't the file the manifest describes.
        """
        manifest = json.loads((model_dir / "manifest.json").read_text(encoding="utf-8"))
        data = (model_dir / manifest["tokenizer"]["file"]).read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != manifest["tokenizer"]["sha256"]:
            raise TokenizerError(
                f"tokenizer.json of model {manifest['name']}: expected SHA-256 "
                f"{manifest['tokenizer']['sha256']}, found {found}; add the model again"
            )
        return cls(data.decode("utf-8"), manifest["chat_template"], manifest["special_tokens"])

    @property
    def largest_id(self) -> int:
        """The highest id this tokenizer can give; the model needs an embedding row for it."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values())

    @property
    def template_tokens(self) -> int:
        """Tokens of the prompt for an empty input plus the end token."""
        return len(self._prompt("")) + 1

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Ids of the conversation up to where the assistant's next text begins.

        Raises ChatTemplateError if the template refuses the messages, TokenizerError for a role
        that isn't one of system, user, assistant and tool.
        """
        for message in messages:
            if message.get("role") not in _ROLES:
                raise TokenizerError(
                    f"a message has role {message.get('role')!r}; expected one of "
                    f"{', '.join(_ROLES)}"
                )
        stand_ins = _StandIns(messages, self._template_characters)
        masked = [
            {
                key: value if key == "role" else self._mask(value, stand_ins)
                for key, value in message.items()
            }
            for message in messages
        ]
        rendered = self._template.render(masked, add_generation_prompt=True)
        named = self._control.sub(lambda match: self._names[match[0]], rendered)
        return self._encode(stand_ins.undo(named))

    def answer_ids(self, text: str) -> list[int]:
        """Ids of an assistant's answer, encoded alone, and the end token.

        `decode(answer_ids(text)[:-1]) == text` exactly; raises TokenizerError naming the characters
        if this tokenizer has no way to write them (SmolLM2 lacks six control characters).
        """
        ids = self._encode(text)
        if self.decode(ids) != text:
            lost = sorted({c for c in text if self.decode(self._encode(c)) != c})[:3]
            named = ", ".join(f"U+{ord(c):04X}" for c in lost) or "this combination of characters"
            raise TokenizerError(
                f"the model's tokenizer can't write {named}; an answer must come back exactly, "
                "so leave it out of the label"
            )
        return [*ids, self.end_token_id]

    def example(self, text: str, label: str) -> EncodedExample:
        """One user message and its label."""
        return EncodedExample(self._prompt(text), self.answer_ids(label))

    def cut(self, text: str, label: str, max_tokens: int) -> tuple[EncodedExample, int]:
        """The example with as much dropped from the END of the input as `max_tokens` asks for.

        Returns it with the number of prompt tokens it lost. The input is cut between characters
        and encoded again; template, control tokens and label stay whole. Raises TokenizerError
        naming the numbers if even an empty input doesn't fit.
        """
        answer = self.answer_ids(label)
        room = max_tokens - len(answer)
        prompt = self._prompt(text)
        whole = len(prompt)
        if whole > room and (least := len(self._prompt(""))) > room:
            raise TokenizerError(
                f"max_tokens is {max_tokens}, but the template needs {least} tokens and the label "
                f"{len(answer)} even with an empty input; raise max_tokens or shorten the label"
            )
        starts: list[int] = []
        kept = 0
        if whole > room:
            starts = [start for start, _ in self._offsets(text)]
            kept = len(starts)
        while len(prompt) > room:
            kept = max(0, kept - (len(prompt) - room))
            prompt = self._prompt(text[: starts[kept]] if kept else "")
        return EncodedExample(prompt, answer), whole - len(prompt)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids, control tokens written out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def verify(self) -> None:
        """Compare with the plain tokenizer on trial conversations, once, when a model is added.

        Raises TokenizerError if the control tokens can't be told apart the way this module does it
        (added tokens that match only whole words, or only after normalising), or if plain answers
        don't come back exactly; ChatTemplateError if the template refuses a conversation.
        """
        for text in _TRIALS:
            messages = [{"role": "user", "content": text}]
            rendered = self._template.render(messages, add_generation_prompt=True)
            expected = self._tokenizer.encode(rendered, add_special_tokens=False).ids
            if self.prompt_ids(messages) != expected:
                raise TokenizerError(
                    "this tokenizer matches its added tokens in a way this version doesn't "
                    "reproduce; use a model whose added tokens are matched as they are written"
                )
        for answer in _TRIAL_ANSWERS:
            self.answer_ids(answer)

    def _prompt(self, text: str) -> list[int]:
        return self.prompt_ids([{"role": "user", "content": text}])

    def _encode(self, text: str) -> list[int]:
        return self._encoder.encode(text, add_special_tokens=False).ids

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        """Where each token of `text` begins and ends, in characters."""
        return self._encoder.encode(text, add_special_tokens=False).offsets

    def _mask(self, text: str, stand_ins: "_StandIns") -> str:
        """`text` with a stand-in for every control token's text it holds or could complete.

        A message that ends in `<|im_` completes a control token if the template goes on with
        `end|>`: so its outermost characters are masked too where they could take part in one.
        """
        text = self._control.sub(lambda match: stand_ins.for_text(match[0]), text)
        core = text.strip()
        if not core:
            return text
        first = text.index(core)
        risky = set()
        if self._could_begin_control(core):
            risky.add(first + len(core) - 1)
        if self._could_end_control(core):
            risky.add(first)
        for place in risky:
            text = text[:place] + stand_ins.for_text(text[place]) + text[place + 1 :]
        return text

    def _could_begin_control(self, core: str) -> bool:
        """Whether more text behind `core` could make a control token of its end."""
        return any(
            core.endswith(token[:size])
            for token in self._control_ids
            for size in range(1, len(token))
        ) or any(core in token for token in self._control_ids)

    def _could_end_control(self, core: str) -> bool:
        """Whether more text before `core` could make a control token of its beginning."""
        return any(
            core.startswith(token[size:])
            for token in self._control_ids
            for size in range(1, len(token))
        )

    def _find_end_token(self) -> int:
        """The control token right behind an assistant's text, found by rendering one."""
        marker = chr(_PRIVATE_USE[-1])
        conversation = [
            {"role": "user", "content": "question"},
            {"role": "assistant", "content": marker},
        ]
        rendered = self._template.render(conversation, add_generation_prompt=False)
        before, found, behind = rendered.partition(marker)
        token = self._control.search(behind)
        if (
            not found
            or marker in before + behind
            or token is None
            or behind[: token.start()].strip()
        ):
            raise TokenizerError(
                "the chat template puts no control token behind an assistant's text; training "
                "needs one to know where an answer ends, so use an instruction-tuned model"
            )
        return self._control_ids[token[0]]


class _StandIns:
    """Private-use characters, in neither the messages nor the template, that stand for texts."""

    def __init__(self, messages: Sequence[Mapping[str, str]], taken: frozenset[str]) -> None:
        used = taken.union(*(value for message in messages for value in message.values()))
        self._free: Iterator[str] = (c for c in map(chr, _PRIVATE_USE) if c not in used)
        self._by_text: dict[str, str] = {}

    def for_text(self, text: str) -> str:
        """The one character that stands for `text`."""
        if text not in self._by_text:
            self._by_text[text] = next(self._free)
        return self._by_text[text]

    def undo(self, text: str) -> str:
        """`text` with what the characters stand for."""
        return text.translate({ord(c): original for original, c in self._by_text.items()})


def _is_control(content: str, special: bool) -> bool:
    """Whether an added token means something beyond its text; runs of spaces (Phi's) don't."""
    return special or bool(content.strip())


def _any_of(contents: Mapping[str, int]) -> re.Pattern[str]:
    """A pattern that matches the longest of `contents` at each place, as `tokenizers` does."""
    longest_first = sorted(contents, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _without_padding(tokenizer: Tokenizer) -> Tokenizer:
    """Truncation and padding belong to the batch, not to the tokenizer."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _renamed(
    tokenizer_json: str, control_ids: Mapping[str, int]
) -> tuple[Tokenizer, dict[str, str]]:
    """The tokenizer with its control tokens under secret names, and name by token text.

    The names begin with a noncharacter and hold 128 random bits: no text can contain one. Raises
    TokenizerError if plain text would still give a control token's id.
    """
    secret = secrets.token_hex(16)
    names = {text: f"\ufdd0{secret}-{number}\ufdd1" for text, number in control_ids.items()}

    def rename(text: str) -> str:
        return names.get(text, text)

    data = json.loads(tokenizer_json)
    for token in data["added_tokens"]:
        token["content"] = rename(token["content"])
    model: dict[str, Any] = data["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {rename(text): number for text, number in model["vocab"].items()}
    else:
        model["vocab"] = [[rename(text), score] for text, score in model["vocab"]]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = rename(model["unk_token"])
    data["post_processor"] = None
    try:
        tokenizer = _without_padding(Tokenizer.from_str(json.dumps(data)))
    except Exception as error:  # tokenizers raises bare Exception
        raise TokenizerError(
            f"this tokenizer builds its control tokens out of plain text ({error}); "
            "a model with such a tokenizer can't be trained safely"
        ) from error
    token_to_id: Callable[[str], int | None] = tokenizer.token_to_id
    for text, number in control_ids.items():
        if token_to_id(names[text]) != number:
            raise TokenizerError(
                f"added token {text!r} has id {number} in tokenizer.json, but loading it gives "
                f"{token_to_id(names[text])}; repair tokenizer.json"
            )
    return tokenizer, names
