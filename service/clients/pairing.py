"""The desk where codes become clients: short codes that live in memory for two minutes.

A person reads the code from one screen and types it into an app on another, so it is short, and
so everything else about it is narrow: each code works once, for two minutes, and five wrong codes
in all make every waiting one void. A restart of the daemon makes them void as well.
"""

import hashlib
import hmac
import math
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from api_schemas.scopes import Scope
from service.boot_clock import boot_seconds

CODE_DIGITS = 8
CODE_SECONDS = 120
MOST_WRONG = 5
MOST_WAITING = 8
_MOST_REMEMBERED = 64

CodeState = Literal["waiting", "used", "expired", "void"]


class WrongCodeError(Exception):
    """No waiting code is this one.

    It was mistyped, was used before, is older than two minutes, is for another name, or became
    void because too many wrong ones were tried; ask for a new one with: lorad pair
    """

    def __init__(self) -> None:
        """Say what the class says."""
        super().__init__(" ".join((self.__doc__ or "").split()))


class TooManyCodesError(Exception):
    """As many codes wait as may; ``seconds`` until the first of them expires."""

    def __init__(self, seconds: int) -> None:
        """Say how many may wait, and how long to wait."""
        super().__init__(
            f"at most {MOST_WAITING} pairing codes may wait at a time; use one of them, or ask "
            f"again in {seconds} seconds"
        )
        self.seconds = seconds


@dataclass(frozen=True)
class Offer:
    """What a code gives: a client of that name, scopes, and the quotas that were named.

    ``replace``: a client of that name may exist, and its token and server key then stop.
    """

    name: str
    scopes: Sequence[Scope]
    quotas: Mapping[str, int | None]
    replace: bool


@dataclass
class _Code:
    offer: Offer
    digest: bytes
    expires: float
    state: CodeState | Literal["taken"] = "waiting"


_OPEN = ("waiting", "taken")


class PairingDesk:
    """The codes of this daemon. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        """An empty desk; ``clock`` counts seconds and never stands still."""
        self._clock = clock
        self._lock = threading.Lock()
        self._key = secrets.token_bytes(32)
        self._codes: dict[str, _Code] = {}
        self._wrong = 0

    def offer(self, offer: Offer) -> str:
        """A new code for the offer: `CODE_DIGITS` digits. An older one for its name is void.

        Raises:
            TooManyCodesError: `MOST_WAITING` others wait already.
        """
        with self._lock:
            self._expire()
            before = self._codes.pop(offer.name, None)
            waiting = self._waiting()
            if len(waiting) >= MOST_WAITING:
                if before is not None:
                    self._codes[offer.name] = before
                first = min(code.expires for code in waiting)
                raise TooManyCodesError(math.ceil(first - self._clock()))
            if not waiting:
                self._wrong = 0
            taken = {code.digest for code in waiting}
            while True:
                code = f"{secrets.randbelow(10**CODE_DIGITS):0{CODE_DIGITS}}"
                digest = self._digest(code)
                if digest not in taken:
                    break
            self._codes[offer.name] = _Code(offer, digest, self._clock() + CODE_SECONDS)
            self._forget()
            return code

    @contextmanager
    def redeem(self, code: str, name: str | None = None) -> Iterator[Offer]:
        """What the code offers, for the block that makes the client; nobody else gets it.

        When the block ends the code is used; when it raises, the code waits again. ``name``, if
        given, must be the offer's.

        Raises:
            WrongCodeError: there is no such code (any more); it counts as a wrong try.
        """
        found = self._take(code, name)
        try:
            yield found.offer
        except BaseException:
            with self._lock:
                if found.state == "taken":
                    found.state = "waiting"
            raise
        with self._lock:
            found.state = "used"

    def state(self, name: str) -> CodeState | None:
        """What became of the last code for that name; None if there was none, or long ago."""
        with self._lock:
            self._expire()
            code = self._codes.get(name)
        if code is None:
            return None
        return "waiting" if code.state == "taken" else code.state

    def void(self, name: str) -> CodeState | None:
        """Make the waiting code for that name void; the state it has then."""
        with self._lock:
            self._expire()
            code = self._codes.get(name)
            if code is not None and code.state == "waiting":
                code.state = "void"
        return self.state(name)

    def _take(self, code: str, name: str | None) -> _Code:
        digest = self._digest(code)
        with self._lock:
            self._expire()
            waiting = self._waiting()
            found = None
            for one in waiting:
                if hmac.compare_digest(one.digest, digest):
                    found = one
            if found is not None and name in (None, found.offer.name):
                found.state = "taken"
                return found
            self._wrong += 1
            if self._wrong >= MOST_WRONG:
                for one in self._codes.values():
                    if one.state in _OPEN:
                        one.state = "void"
        raise WrongCodeError

    def _digest(self, code: str) -> bytes:
        return hmac.digest(self._key, code.encode(), hashlib.sha256)

    def _waiting(self) -> list[_Code]:
        return [code for code in self._codes.values() if code.state == "waiting"]

    def _expire(self) -> None:
        now = self._clock()
        for code in self._waiting():
            if now >= code.expires:
                code.state = "expired"

    def _forget(self) -> None:
        """Drop the oldest outcomes, so that memory stays bounded."""
        done = [name for name, code in self._codes.items() if code.state not in _OPEN]
        for name in done[: max(0, len(self._codes) - _MOST_REMEMBERED)]:
            del self._codes[name]
