"""NDJSON as it comes in: the lines of a body whose parts end anywhere."""

from collections.abc import AsyncIterator

MEDIA_TYPE = "application/x-ndjson"


async def lines(parts: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Each line with its number from 1, without the newline; the last line needs none.

    Of blank lines that follow each other the first comes, as ``b""``; those at the end don't.
    """
    number = 0
    blank = None
    async for line in _raw_lines(parts):
        number += 1
        if not line.strip():
            blank = blank or number
            continue
        if blank is not None:
            yield blank, b""
            blank = None
        yield number, line


async def _raw_lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    begun = bytearray()
    async for part in parts:
        *ends, rest = part.split(b"\n")
        for end in ends:
            begun += end
            yield bytes(begun)
            begun.clear()
        begun += rest
    if begun:
        yield bytes(begun)
