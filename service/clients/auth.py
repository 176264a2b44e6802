"""Who is calling: the owner's token on disk, and tokens of requests against hashes."""

import hashlib
import hmac
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from api_schemas.scopes import ADMIN, Scope
from service.secret_file import SecretFileError, secret
from storage import clients
from storage.database import Database
from storage.tables import Client

_TOKEN_BYTES = 32


@dataclass(frozen=True)
class Caller:
    """The client whose things a request is about, with what its sender may do.

    ``token`` is the hash of the token that the sender showed; None where nobody sent anything.
    """

    id: int
    name: str
    scopes: frozenset[Scope]
    token: bytes | None = field(default=None, repr=False)

    def may(self, *scopes: Scope) -> bool:
        """Whether it has one of these scopes; ``admin`` stands for all of them."""
        return ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)


def new_token() -> str:
    """A token of 256 random bits, as text for a header."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def owner_token(path: Path) -> str:
    """The token in the file, which is made with a new token if there is none.

    Raises:
        SecretFileError: the file holds no token.
    """
    token = secret(path, lambda: f"{new_token()}\n".encode()).decode("utf-8", "replace").strip()
    if len(token) < _TOKEN_BYTES or not token.isascii() or not token.isprintable():
        raise SecretFileError(
            f"{path} should hold a token of at least {_TOKEN_BYTES} ASCII characters and doesn't; "
            "delete it, and the next start makes a new one"
        )
    return token


def token_hash(token: bytes) -> bytes:
    """What is kept of a token. Tokens are 256 random bits, so a plain hash can't be guessed."""
    return hashlib.sha256(token).digest()


class Authenticator:
    """Finds the caller of a request by its bearer token. Safe to use from several threads."""

    def __init__(self, rows: Iterable[Client]) -> None:
        """Know these clients."""
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self.know(rows)

    def know(self, rows: Iterable[Client]) -> None:
        """From now on know exactly these clients."""
        clients_now = list(rows)
        callers = {row.name: _caller(row) for row in clients_now}
        tokens = [(row.token_hash, callers[row.name]) for row in clients_now if row.token_hash]
        keys = frozenset(row.key_id for row in clients_now)
        with self._lock:
            self._tokens, self._callers, self._keys = tokens, callers, keys

    def learn(self, database: Database) -> None:
        """Know the clients as the database has them: call it after each commit that changed one.

        Whoever calls last has read last, so two changes at once can't leave the older one known.
        """
        with self._reading:
            with database.read() as session:
                rows = clients.every(session)
            self.know(rows)

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

    def still_valid(self, caller: Caller) -> bool:
        """Whether the token that its sender showed still stands, with all the scopes it had.

        For whatever outlives the moment in which the guard looked: a body that takes long to
        arrive, a stream of events.
        """
        with self._lock:
            tokens = self._tokens
        return any(token == caller.token and now.scopes >= caller.scopes for token, now in tokens)

    def has_key(self, key_id: str) -> bool:
        """Whether a client has the server key of that id now."""
        with self._lock:
            return key_id in self._keys

    def named(self, name: str) -> Caller | None:
        """The client of that name, also one whose token is revoked."""
        with self._lock:
            return self._callers.get(name)


def _caller(row: Client) -> Caller:
    scopes = frozenset(cast("list[Scope]", row.scopes))
    return Caller(row.id, row.name, scopes, row.token_hash)
