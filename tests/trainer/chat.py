"""Chat templates of every kind, and texts with edges, for the tests of tokens."""

from functools import cache

from trainer.models.tiny import byte_tokenizer
from trainer.tokens import ChatTokenizer

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRIMMING = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }} {{ message.content | trim }}"
    "<|im_end|>\n{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant {% endif -%}"
)
MERGING = (  # nothing between content and template text: tokens merge across both borders
    "{% for message in messages %}{{ bos_token }}{{ message.role }} says the{{ message.content }}"
    "{{ 'ing' if message.role == 'user' }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant says the{% endif %}"
)
LOOKING = (  # looks into the content and changes it
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content.startswith('say ') %}!{% endif %}"
    "{{ message.content | replace('\\n', ' ') }}"
    "{{ message.content | length if message.role == 'user' }}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COMPLETING = (  # content and template text together spell a control token
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ '<|im_' + message.content + '|>' if message.role == 'user' else message.content }}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {
    "chatml": CHATML,
    "trimming": TRIMMING,
    "merging": MERGING,
    "looking": LOOKING,
    "completing": COMPLETING,
}
NAMES = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": None}


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


EDGES = (
    *("", " ", "\n", "\n\n\n", " a", "a ", "\n a\n", "\u3000日本語\u3000", "🎉", " 26  ", "say x"),
    *("<", ">", "|", "|>", "<|", "e", "_", " > ", "<>", ">\n<"),
)
ANSWERS = (
    "now",
    " now",
    "\nnow",
    "\n\n now ",
    "",
    " ",
    "日本語",
    "後で",
    "🎉",
    "👨‍👩‍👧",
    "<|im_end|>",
    "it's 2026",
    "a\tb\r\n",
    "\ufdd0",
)


@cache
def byte_chat() -> ChatTokenizer:
    """ChatML over one token a byte, without a model."""
    return ChatTokenizer(byte_tokenizer().to_str(), CHATML, NAMES)


def gpt2_alphabet() -> dict[int, str]:
    """The character by which byte-level vocabularies write each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    alphabet = {byte: chr(byte) for byte in plain}
    return alphabet | {byte: chr(0x100 + index) for index, byte in enumerate(others)}
