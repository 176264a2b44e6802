"""Clients: who may speak to the daemon."""

from collections.abc import Sequence

from sqlmodel import Session, col, select

from storage.tables import Client

OWNER = "owner"
"""The client that belongs to the phone's user."""


def put(session: Session, name: str, token_hash: bytes) -> Client:
    """Create the client, or give the existing one of that name this token.

    The owner may do everything; any other client gets its scopes from whoever pairs it.
    """
    client = session.exec(select(Client).where(Client.name == name)).one_or_none()
    if client is None:
        client = Client(name=name)
    if name == OWNER:
        client.scopes = ["admin"]
    client.token_hash = token_hash
    session.add(client)
    session.flush()
    return client


def every(session: Session) -> Sequence[Client]:
    """All clients, oldest first."""
    return session.exec(select(Client).order_by(col(Client.id))).all()
