"""What a child process tells the daemon: one JSON object a line."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping
from typing import IO, Any


class Protocol:
    """JSON lines on a duplicate of fd 1.

    fd 1 itself then points to standard error, because native libraries print. A daemon that is gone
    must not keep the child from ending in order, so a broken pipe is noted and not raised.
    """

    def __init__(self, always: Mapping[str, Any]) -> None:
        """Take over fd 1; each event carries the fields of `always`."""
        self._always = dict(always)
        self._out: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        os.dup2(2, 1)
        self.broken = False

    def emit(self, event: str, fields: Mapping[str, Any]) -> None:
        """Send one event."""
        if self.broken:
            return
        try:
            self._out.write(json.dumps({"event": event, **self._always, **fields}) + "\n")
        except OSError:
            self.broken = True

    def abandoned(self) -> bool:
        """Whether nobody reads any more, as far as the system tells."""
        if not self.broken:
            poll = select.poll()
            poll.register(self._out, 0)  # an end that was closed is told unasked
            self.broken = any(said & select.POLLERR for _, said in poll.poll(0))
        return self.broken
