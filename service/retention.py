"""Retention over time: examples expire in small batches, so that nobody waits long for a write."""

import threading
import time

from service.runs.supervisor import Supervisor
from storage import adapters, retention
from storage.clock import now_ms
from storage.database import Database

BATCH = 1000
"""Examples that expire, or shells that go, in one transaction."""

_PAUSE_SECONDS = 0.01
"""Between two batches: who waits for the writer gets it."""


def apply(database: Database, supervisor: Supervisor, adapter_id: int) -> int:
    """Let expire what the adapter keeps too long or too many of; return how many did.

    A worker that trains the adapter is told after every batch. Does nothing for an adapter that
    is gone.
    """
    expired = 0
    while True:
        with database.write() as session:
            adapter = adapters.by_id(session, adapter_id)
            if adapter is None:
                return expired
            count = retention.expire(session, adapter, now_ms(), most=BATCH)
        expired += count
        if count:
            supervisor.examples_changed(adapter_id)
        if count < BATCH:
            return expired
        time.sleep(_PAUSE_SECONDS)


def expire_everywhere(
    database: Database, supervisor: Supervisor, stopping: threading.Event
) -> None:
    """Apply the retention of every adapter, and drop old shells, until done or ``stopping``."""
    with database.read() as session:
        ids = retention.adapter_ids(session)
    for adapter_id in ids:
        if stopping.is_set():
            return
        apply(database, supervisor, adapter_id)
        while not stopping.is_set():
            with database.read() as session:
                old = retention.old_shells(session, adapter_id, now_ms(), BATCH)
            if not old:
                break
            with database.write() as session:
                adapter = adapters.by_id(session, adapter_id)
                if adapter is None:
                    break
                retention.drop_shells(session, adapter, old)
            stopping.wait(_PAUSE_SECONDS)
