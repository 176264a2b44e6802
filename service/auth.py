"""Who is calling: the owner's token on disk, and tokens of requests against hashes."""

import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from api_schemas.scopes import ADMIN, Scope
from storage.tables import Client

_TOKEN_BYTES = 32


class TokenFileError(Exception):
    """The token file can't be used; the message says why and what to do."""


@dataclass(frozen=True)
class Caller:
    """The client whose things a request is about, with what its sender may do."""

    id: int
    name: str
    scopes: frozenset[Scope]

    def may(self, *scopes: Scope) -> bool:
        """Whether it has one of these scopes; ``admin`` stands for all of them."""
        return ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)


def owner_token(path: Path) -> str:
    """The token in the file, which is made with a new token if there is none.

    Raises:
        TokenFileError: the file holds no token.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return _new_token(path)
    with os.fdopen(descriptor) as file:
        os.fchmod(file.fileno(), 0o600)
        token = file.read(4096).strip()
    if len(token) < _TOKEN_BYTES or not token.isascii() or not token.isprintable():
        raise TokenFileError(
            f"{path} should hold a token of at least {_TOKEN_BYTES} ASCII characters and doesn't; "
            "delete it, and the next start makes a new one"
        )
    return token


def _new_token(path: Path) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    return token


def token_hash(token: bytes) -> bytes:
    """What is kept of a token. Tokens are 256 random bits, so a plain hash can't be guessed."""
    return hashlib.sha256(token).digest()


class Authenticator:
    """Finds the caller of a request by its bearer token. Safe to use from several threads."""

    def __init__(self, clients: Iterable[Client]) -> None:
        """Know these clients."""
        self._lock = threading.Lock()
        self.know(clients)

    def know(self, clients: Iterable[Client]) -> None:
        """From now on know exactly these clients: call it after every change of theirs."""
        rows = list(clients)
        callers = {row.name: _caller(row) for row in rows}
        tokens = [(row.token_hash, callers[row.name]) for row in rows if row.token_hash]
        with self._lock:
            self._tokens, self._callers = tokens, callers

    def caller(self, authorization: bytes | None) -> Caller | None:
        """The client whose token the ``Authorization`` header carries.

        Takes the same time for every token: hashes are compared whole, and with every client.
        """
        scheme, _, token = (authorization or b"").partition(b" ")
        given = token_hash(token.strip())
        with self._lock:
            tokens = self._tokens
        found = None
        for known, caller in tokens:
            if hmac.compare_digest(known, given):
                found = caller
        return found if scheme.lower() == b"bearer" else None

    def named(self, name: str) -> Caller | None:
        """The client of that name, also one whose token is revoked."""
        with self._lock:
            return self._callers.get(name)


def _caller(row: Client) -> Caller:
    return Caller(row.id, row.name, frozenset(cast("list[Scope]", row.scopes)))
