"""A question, and how what answers it gets from the desk's thread to the one who asked."""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

from service.door.problems import Refusal
from service.predictions.events import Answer, Token


class Channel:
    """From the desk's thread to the event loop in which it was made."""

    def __init__(self) -> None:
        """Lead to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Token | Answer | Refusal] = asyncio.Queue()

    def put(self, item: Token | Answer | Refusal) -> None:
        """Hand something over, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it who asked
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def get(self) -> Token | Answer:
        """What comes next; nothing comes after an answer or a refusal.

        Raises:
            Refusal: the question isn't answered.
        """
        item = await self._queue.get()
        if isinstance(item, Refusal):
            raise item
        return item


@dataclass(eq=False)
class Question:
    """What one request asks of one adapter.

    ``fields`` are those of the line that is sent, without the id, which the desk gives.
    """

    client_id: int
    base_hash: str
    fields: dict[str, Any] = field(repr=False)
    channel: Channel = field(default_factory=Channel, repr=False)
    left: bool = False
    """Whether nobody waits for the answer any more."""

    def message(self, number: int) -> dict[str, Any]:
        """What is sent under that id."""
        return {"id": number, **self.fields}


def line_of(message: dict[str, Any]) -> bytes:
    """A message as JSON on one line, in ASCII, whatever is in its texts."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
