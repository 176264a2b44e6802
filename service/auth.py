"""Who is calling: the owner's token on disk, and tokens of requests against hashes."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from storage.tables import Client

_TOKEN_BYTES = 32


class TokenFileError(Exception):
    """The token file can't be used; the message says why and what to do."""


@dataclass(frozen=True)
class Caller:
    """The client that a request comes from."""

    id: int
    name: str


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
    """Finds the caller of a request by its bearer token."""

    def __init__(self, clients: Iterable[Client]) -> None:
        """Know these clients."""
        self._clients = [(row.token_hash, Caller(row.id, row.name)) for row in clients]

    def caller(self, authorization: bytes | None) -> Caller | None:
        """The client whose token the ``Authorization`` header carries.

        Takes the same time for every token: hashes are compared whole, and with every client.
        """
        scheme, _, token = (authorization or b"").partition(b" ")
        given = token_hash(token.strip())
        found = None
        for known, caller in self._clients:
            if hmac.compare_digest(known, given):
                found = caller
        return found if scheme.lower() == b"bearer" else None
