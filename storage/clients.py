"""Clients: who may speak to the daemon, and what each may do."""

import secrets
from collections.abc import Mapping, Sequence

from sqlmodel import Session, col, select

from storage.clock import now_ms
from storage.owner import OWNER as OWNER
from storage.tables import Client

QUOTAS = ("examples_per_day", "most_bytes", "most_pending")


class ClientExistsError(Exception):
    """There is a client of that name already; choose another name, or say that it be replaced."""

    def __init__(self) -> None:
        """Say what the class says."""
        super().__init__(self.__doc__)


def put(session: Session, name: str, token_hash: bytes) -> Client:
    """Create the client, or give the existing one of that name this token.

    The owner may do everything; any other client gets its scopes from whoever pairs it.
    """
    client = find(session, name)
    if client is None:
        client = Client(name=name)
    if name == OWNER:
        client.scopes = ["admin"]
    client.token_hash = token_hash
    session.add(client)
    session.flush()
    return client


def pair(
    session: Session,
    name: str,
    token_hash: bytes,
    scopes: Sequence[str],
    quotas: Mapping[str, int | None],
    *,
    defaults: Mapping[str, int | None],
    replace: bool,
) -> Client:
    """A client of that name with this token, these scopes and quotas, and a new server key.

    ``quotas`` need not name all: what it leaves out is kept, or for a new client in ``defaults``.

    Raises:
        ClientExistsError: there is one already, and it isn't to be replaced.
    """
    client = find(session, name)
    if client is None:
        client = Client(name=name)
        set_quotas(client, defaults)
    elif not replace:
        raise ClientExistsError
    client.scopes = list(scopes)
    set_quotas(client, quotas)
    return renew(session, client, token_hash)


def set_quotas(client: Client, quotas: Mapping[str, int | None]) -> None:
    """Set the quotas that are named; None: no limit."""
    for name in quotas.keys() & set(QUOTAS):
        setattr(client, name, quotas[name])


def renew(session: Session, client: Client, token_hash: bytes) -> Client:
    """Give the client this token and a new server key; the old ones stop."""
    client.token_hash = token_hash
    client.key_id = secrets.token_hex(16)
    client.paired_at = now_ms()
    session.add(client)
    session.flush()
    return client


def find(session: Session, name: str) -> Client | None:
    """The client of that name."""
    return session.exec(select(Client).where(Client.name == name)).one_or_none()


def by_id(session: Session, client_id: int) -> Client | None:
    """The client with that id."""
    return session.get(Client, client_id)


def has_token(session: Session, token_hash: bytes) -> bool:
    """Whether a client has the token of this hash."""
    return (
        session.exec(select(Client.id).where(Client.token_hash == token_hash)).first() is not None
    )


def every(session: Session) -> Sequence[Client]:
    """All clients, oldest first."""
    return session.exec(select(Client).order_by(col(Client.id))).all()


def page(session: Session, *, after: str, limit: int) -> Sequence[Client]:
    """Up to ``limit`` clients whose names come after that one, by name."""
    return session.exec(
        select(Client).where(col(Client.name) > after).order_by(col(Client.name)).limit(limit)
    ).all()
