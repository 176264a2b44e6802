"""Adapters: a client's named LoRAs."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sqlmodel import Session, col, func, select

from storage.tables import Adapter

MOST_ADAPTERS = 1000
"""Adapters of one client."""


class AdapterExistsError(Exception):
    """This client has an adapter of that name already; choose another name."""

    def __init__(self) -> None:
        """Say what the class says."""
        super().__init__(self.__doc__)


class TooManyAdaptersError(Exception):
    """This client has as many adapters as it may have; delete one first."""

    def __init__(self) -> None:
        """Say what the class says."""
        super().__init__(self.__doc__)


def create(session: Session, adapter: Adapter) -> Adapter:
    """Keep a new adapter; its key is drawn here.

    Raises:
        AdapterExistsError: the name is taken.
        TooManyAdaptersError: the client has `MOST_ADAPTERS`.
    """
    if find(session, adapter.client_id, adapter.name) is not None:
        raise AdapterExistsError
    own = select(func.count()).where(Adapter.client_id == adapter.client_id)
    if session.exec(own).one() >= MOST_ADAPTERS:
        raise TooManyAdaptersError
    adapter.key = secrets.token_bytes(32)
    session.add(adapter)
    session.flush()
    return adapter


def find(session: Session, client_id: int, name: str) -> Adapter | None:
    """The client's adapter of that name."""
    return session.exec(
        select(Adapter).where(Adapter.client_id == client_id, Adapter.name == name)
    ).one_or_none()


def by_id(session: Session, adapter_id: int) -> Adapter | None:
    """The adapter with that id, whoever owns it."""
    return session.get(Adapter, adapter_id)


def ids_of_client(session: Session, client_id: int) -> Sequence[int]:
    """The ids of all of the client's adapters."""
    return session.exec(select(col(Adapter.id)).where(Adapter.client_id == client_id)).all()


def page(session: Session, client_id: int, *, after: str, limit: int) -> Sequence[Adapter]:
    """Up to ``limit`` of the client's adapters with names above ``after``, by name."""
    return session.exec(
        select(Adapter)
        .where(Adapter.client_id == client_id, col(Adapter.name) > after)
        .order_by(col(Adapter.name))
        .limit(limit)
    ).all()


def change(session: Session, adapter: Adapter, settings: Mapping[str, Any]) -> list[str]:
    """Give the adapter these settings, by column; a real change makes a new revision.

    Returns:
        The columns that really changed.
    """
    changed = [name for name, value in settings.items() if getattr(adapter, name) != value]
    for name in changed:
        setattr(adapter, name, settings[name])
    if changed:
        adapter.revision += 1
        session.add(adapter)
        session.flush()
    return changed


def data_key(session: Session, adapter_id: int) -> bytes:
    """The 32 bytes that key hashes of this adapter's texts.

    Raises:
        LookupError: there is no such adapter.
    """
    key = session.exec(select(Adapter.key).where(Adapter.id == adapter_id)).one_or_none()
    if key is None:
        raise LookupError(f"there is no adapter {adapter_id} in this database")
    return key
