"""A text that grows by tokens, given out as far as nothing to come can change it.

Held back are the bytes of a code point that isn't whole yet, and whatever could be the beginning of
a stop string. So the pieces are whole code points, no part of a stop string is ever among them, and
together they are the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_BROKEN = "\ufffd"
"""What a decoder writes for bytes that are no whole code point."""


class GrowingText:
    """The text of one answer."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        """Empty. `decode` gives the text of tokens; `stop` are the strings before which it ends."""
        self._decode, self._stop = decode, [text for text in stop if text]
        self._ids: list[int] = []
        self.text = ""
        """What was given out so far."""
        self.stopped = False
        """Whether a stop string came; nothing is given out after it."""

    def add(self, token: int) -> str:
        """Take in a token; what can be given out now, perhaps nothing."""
        self._ids.append(token)
        return self._give(self._decode(self._ids).rstrip(_BROKEN), final=False)

    def finish(self) -> str:
        """No token comes any more; what was held back."""
        return self._give(self._decode(self._ids), final=True)

    def _give(self, whole: str, *, final: bool) -> str:
        if self.stopped:
            return ""
        given = len(self.text)
        found = [place for text in self._stop if (place := whole.find(text, given)) >= 0]
        self.stopped = bool(found)
        if found:
            end = min(found)
        elif final:
            end = len(whole)
        else:
            end = len(whole) - max((_begun(whole, text, given) for text in self._stop), default=0)
        new = whole[given:end]
        self.text += new
        return new


def _begun(whole: str, stop: str, given: int) -> int:
    """How many characters at the end of `whole`, after the first `given`, could begin `stop`."""
    longest = min(len(stop) - 1, len(whole) - given)
    return next((n for n in range(longest, 0, -1) if whole.endswith(stop[:n])), 0)
