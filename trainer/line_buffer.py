"""Bytes that come in pieces, as lines."""

from __future__ import annotations

MOST_LINE_BYTES = 64 * 1024 * 1024
"""Far above the longest line the daemon sends, a question with many inputs."""


class LineBuffer:
    """Cuts what it is fed at the ends of lines; of a line that is too long nothing is kept."""

    def __init__(self, most: int = MOST_LINE_BYTES) -> None:
        """Lines of at most so many bytes are whole."""
        self._most = most
        self._unfinished = bytearray()
        self._too_long = False

    def feed(self, some: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their ends; b"" for one too long."""
        *ends, rest = some.split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(bytes(self._unfinished))
            self._unfinished.clear()
            self._too_long = False
        self._add(rest)
        return lines

    def _add(self, some: bytes) -> None:
        self._unfinished += some
        if self._too_long or len(self._unfinished) > self._most:
            self._too_long = True
            self._unfinished.clear()
