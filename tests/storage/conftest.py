"""A database in a temporary folder, with one client and ways to fill it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import adapters, clients
from storage.database import Database
from storage.tables import Adapter


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "lorad.db") as database:
        yield database


def new_adapter(database: Database, name: str = "phone") -> Adapter:
    with database.write() as session:
        client = clients.put(session, "owner", b"\x01" * 32)
        return adapters.create(
            session,
            Adapter(
                client_id=client.id,
                name=name,
                base_model="tiny",
                base_hash="sha256:00",
                method="first_order",
                rank=8,
                alpha=16.0,
                targets=["q_proj"],
                use_rslora=False,
                labels=["now", "later"],
                max_tokens=1024,
                too_long="refuse",
                training={},
            ),
        )


@pytest.fixture
def adapter(database: Database) -> Adapter:
    return new_adapter(database)
