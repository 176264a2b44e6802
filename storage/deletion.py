"""Deleting examples, versions, adapters and clients, each with all that hangs on it.

Every function here works in the writer's transaction of its caller, and leaves in the same
transaction an erasure: the list of what has still to go from the disk once it is committed. So a
kill at any instant leaves either everything as it was, or the rows gone and the rest to be done.
"""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, delete, true
from sqlmodel import Session, col, select

from storage import erasures, history
from storage.counting import ExampleCount
from storage.examples import counts
from storage.forgetting import Lost, Witnesses, note_lost
from storage.ledgers import DailyUsage, Erasure, HistoryEntry, IdempotencyRecord, NightUsage
from storage.tables import Adapter, Client, Example, Run, Version

_ROWS_AT_ONCE = 5_000


@dataclass(frozen=True)
class Deleted:
    """What a deletion of examples took: how many, who had seen them, and its erasure."""

    examples: int
    witnesses: Witnesses
    erasure: Erasure


def delete_examples(
    session: Session,
    adapter: Adapter,
    *,
    example_id: int | None = None,
    external_id: str | None = None,
) -> Deleted:
    """Delete the adapter's example of that id or external id; all of them if neither is given.

    Nothing is deleted, and the erasure is empty, where there is no such example.
    """
    mine = and_(col(Example.adapter_id) == adapter.id, _which(example_id, external_id))
    lost = Lost.of(
        (one, created)
        for one, created in session.exec(
            select(Example.id, Example.created_at)
            .where(mine, Example.status != "expired")
            .execution_options(yield_per=_ROWS_AT_ONCE)
        )
    )
    count = session.exec(delete(Example).where(mine)).rowcount
    witnesses = note_lost(session, adapter.id, lost)
    if count:
        history.add(
            session,
            "examples-deleted",
            f"{count} examples were deleted" if count > 1 else "one example was deleted",
            client_id=adapter.client_id,
            adapter=adapter.name,
        )
    erasure = erasures.add(session, "examples", adapter.client_id, count)
    return Deleted(count, witnesses, erasure)


def delete_version(session: Session, adapter: Adapter, version: Version, why: str = "") -> Erasure:
    """Delete a version and its folder. ``why`` ends the sentence that tells of it."""
    session.exec(delete(Version).where(col(Version.id) == version.id))
    history.add(
        session,
        "version-deleted",
        f"version {version.number} was deleted{why}",
        client_id=adapter.client_id,
        adapter=adapter.name,
        run_id=version.run_id,
    )
    return erasures.add(session, "version", adapter.client_id, 0, [version.path])


def delete_adapter(session: Session, adapter: Adapter) -> Erasure:
    """Delete an adapter with its examples, runs, versions, records, history and folders."""
    count, paths = _delete_adapter(session, adapter)
    history.add(
        session,
        "adapter-deleted",
        f"an adapter and its {count} examples were deleted",
        client_id=adapter.client_id,
    )
    return erasures.add(session, "adapter", adapter.client_id, count, paths)


def delete_client(session: Session, client: Client) -> tuple[list[int], Erasure]:
    """Delete a client with all its adapters, records, usage and history.

    Returns:
        The ids of its adapters, and the erasure.
    """
    count, paths = 0, []
    adapters = session.exec(
        select(Adapter).where(Adapter.client_id == client.id).order_by(col(Adapter.id))
    ).all()
    for adapter in adapters:
        examples, folders = _delete_adapter(session, adapter)
        count += examples
        paths += folders
    for table in (IdempotencyRecord, DailyUsage, HistoryEntry):
        session.exec(delete(table).where(col(table.client_id) == client.id))
    erasure = erasures.add(session, "client", client.id, count, paths)
    ids = [adapter.id for adapter in adapters]
    session.exec(delete(Client).where(col(Client.id) == client.id))
    history.add(
        session,
        "client-deleted",
        f"a client, its {len(adapters)} adapters and their {count} examples were deleted",
    )
    return ids, erasure


def _which(example_id: int | None, external_id: str | None) -> ColumnElement[bool]:
    if example_id is not None:
        return col(Example.id) == example_id
    if external_id is not None:
        return col(Example.external_id) == external_id
    return true()


def _delete_adapter(session: Session, adapter: Adapter) -> tuple[int, list[str]]:
    """Delete the adapter's rows; return its number of examples and its folders."""
    run_ids = session.exec(select(col(Run.id)).where(Run.adapter_id == adapter.id)).all()
    had = counts(session, adapter.id)
    session.exec(
        delete(HistoryEntry).where(
            col(HistoryEntry.client_id) == adapter.client_id,
            col(HistoryEntry.adapter) == adapter.name,
        )
    )
    for table in (IdempotencyRecord, NightUsage, Version, Run, Example, ExampleCount):
        session.exec(delete(table).where(col(table.adapter_id) == adapter.id))
    session.exec(delete(Adapter).where(col(Adapter.id) == adapter.id))
    return had.train + had.holdout + had.expired, [
        f"adapters/{adapter.id}",
        *(f"runs/{one}" for one in run_ids),
    ]
