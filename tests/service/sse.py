"""Reading event streams by the letter of the HTML standard (9.2.6), without lorad's code."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sse:
    """A dispatched event."""

    name: str
    text: str
    last_id: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)


def lines_of(parts: Iterable[bytes]) -> Iterator[str]:
    """Lines of the stream, as their ends arrive: CR LF, LF or CR."""
    buffer = b""
    first = True
    for part in parts:
        buffer += part
        while (ends := [i for i in (buffer.find(b"\n"), buffer.find(b"\r")) if i >= 0]) != []:
            end = min(ends)
            if buffer[end : end + 1] == b"\r" and end + 1 == len(buffer):
                break  # a line feed may follow
            line, buffer = buffer[:end], buffer[end:].removeprefix(b"\r").removeprefix(b"\n")
            text = line.decode("utf-8")
            yield text.removeprefix("\ufeff") if first else text
            first = False


def events_of(parts: Iterable[bytes], comments: list[str] | None = None) -> Iterator[Sse]:
    """The events that a browser would dispatch."""
    data: list[str] = []
    name = last_id = ""
    for line in lines_of(parts):
        if line == "":
            if data:
                yield Sse(name or "message", "\n".join(data), last_id)
            data, name = [], ""
            continue
        if line.startswith(":"):
            if comments is not None:
                comments.append(line[1:])
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id = value
