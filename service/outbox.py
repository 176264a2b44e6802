"""Lines for a child's standard input: each arrives whole and in order, and nobody waits for it."""

import os
import select
import threading
from collections import deque

_LOOK_MILLISECONDS = 500


class Outbox:
    """The writing end of a pipe. What doesn't fit into it is written by a thread of its own."""

    def __init__(self, descriptor: int) -> None:
        """Write to this descriptor, which stays the caller's; it no longer blocks."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._guard = threading.Lock()
        self._unsent: deque[bytes] = deque()
        self._writing = False
        self._closed = False

    def put(self, line: bytes) -> None:
        """Send a line, unless the very same is still to be sent. Never waits."""
        with self._guard:
            if self._closed or line in self._unsent:
                return
            self._unsent.append(line)
            if self._writing:
                return
            self._write()
            if self._unsent:
                self._writing = True
                threading.Thread(target=self._go_on, name="lorad-outbox", daemon=True).start()

    def close(self) -> None:
        """Send nothing more; from now on the descriptor may be closed."""
        with self._guard:
            self._closed = True
            self._unsent.clear()

    def _go_on(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        while True:
            poll.poll(_LOOK_MILLISECONDS)  # of a closed descriptor it returns at once
            with self._guard:
                self._write()
                if not self._unsent:
                    self._writing = False
                    return

    def _write(self) -> None:
        try:
            while self._unsent:
                first = self._unsent[0]
                sent = os.write(self._descriptor, first)
                if sent == len(first):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = first[sent:]
        except BlockingIOError:
            return
        except BrokenPipeError:  # nobody reads any more
            self._closed = True
            self._unsent.clear()
