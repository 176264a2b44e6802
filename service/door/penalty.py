"""Failing to authenticate costs time: that request's own, and nobody else's.

Every caller comes from 127.0.0.1, so a lock-out by address would let one app lock out all others.
"""

import asyncio

SECONDS = 0.5
MOST_WAITING = 64


class Penalty:
    """Delays failing requests; over `MOST_WAITING` at a time, they are answered at once.

    So a flood of them holds neither memory nor connections. Used from the event loop only.
    """

    def __init__(self) -> None:
        """Begin with nobody waiting."""
        self._waiting = 0

    async def wait(self) -> None:
        """Let the request of the calling task wait."""
        if self._waiting >= MOST_WAITING:
            return
        self._waiting += 1
        try:
            await asyncio.sleep(SECONDS)
        finally:
            self._waiting -= 1
