"""Connections that say nothing can't keep the others out.

Any app may open connections and leave them idle, and a process may have only so many files. So
beyond `MOST_CONNECTIONS` each new one closes the one that has been idle longest. Who asks something
is idle only until its request's head has arrived, an instant, so a flood closes its own.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 256


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1, with a bound on idle connections."""

    idle_since = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered: its head hasn't arrived, or the answer is out."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take in a new connection, and close the one that has been idle longest if need be."""
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            others: list[Any] = [one for one in self.connections if one is not self]
            idle = [one for one in others if one.is_idle and not one.transport.is_closing()]
            if idle:
                min(idle, key=lambda one: one.idle_since).transport.abort()

    def on_response_complete(self) -> None:
        """Go idle."""
        self.idle_since = self.loop.time()
        super().on_response_complete()
