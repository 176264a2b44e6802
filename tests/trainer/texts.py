"""Thousands of deterministic texts that tokenizers disagree on when they disagree at all."""

import importlib.metadata
import random
from collections.abc import Iterator

_SCRIPTS = (
    (0x20, 0x7E),
    (0xA0, 0x24F),
    (0x300, 0x36F),
    (0x370, 0x4FF),
    (0x590, 0x6FF),
    (0x900, 0x97F),
    (0xE00, 0xE7F),
    (0x1100, 0x11FF),
    (0x2000, 0x206F),
    (0x2070, 0x218F),
    (0x2460, 0x24FF),
    (0x3040, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xFE00, 0xFE0F),
    (0xFF00, 0xFFEF),
    (0x1D400, 0x1D7FF),
    (0x1F300, 0x1FAFF),
    (0x1, 0x3FFFF),
)
_WORDS = """
    the I'm you'll we've they're don't it's he'd CAN'T It'S 'S 's def return print( x==y __init__
    camelCase 3.14 1,000 2026-11-29 12:45 http://a.b/c?d=1 user@mail.com #tag $5 50% ... --- '''
    ``` 日本語 東京駅で会う テスト مرحبا héllo naïve 🎉 👨‍👩‍👧 🇯🇵 👍🏽 ½ ² Ⅷ ٣٤ ①
"""
_GAPS = ("", " ", "  ", "   ", "\n", " \n ", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u200b")
_DIGITS = ("0", "7", "12", "345", "99999", "٣٤", "½", " ", "  ", "\n", "a", "é", "'s", "!", ",")


def random_texts(seed: int, count: int) -> Iterator[str]:
    """Random Unicode, words with odd gaps, digits in every neighbourhood."""
    chance = random.Random(seed)
    words = _WORDS.split()
    for index in range(count):
        parts: list[str] = []
        for _ in range(chance.randint(1, 25)):
            if index % 3 == 0:
                first, last = chance.choice(_SCRIPTS)
                code = chance.randint(first, last)
                parts += "" if 0xD800 <= code <= 0xDFFF else chr(code)
            elif index % 3 == 1:
                parts += (chance.choice(words), chance.choice(_GAPS))
            else:
                parts.append(chance.choice(_DIGITS))
        yield "".join(parts)


def package_texts(seed: int, count: int) -> Iterator[str]:
    """Pieces of what installed packages say about themselves: prose, code, links, lists."""
    chance = random.Random(seed)
    packages = sorted(importlib.metadata.distributions(), key=lambda found: found.name)
    corpus = "\n".join(str(package.metadata.get_payload() or "") for package in packages)
    for _ in range(count):
        start = chance.randrange(len(corpus))
        yield corpus[start : start + chance.randint(1, 400)]
