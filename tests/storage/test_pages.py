"""Pages are found by an index, whatever else is asked for: a long list costs as much as a short."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event
from sqlmodel import Session

from storage import adapters, example_pages, versions
from storage.database import Database
from tests.storage.conftest import new_adapter

PAGES: dict[str, Callable[[Session], Any]] = {
    "adapters": lambda session: adapters.page(session, 1, after="x", limit=50),
    "versions": lambda session: versions.page(session, 1, before=7, limit=50),
    "newest versions": lambda session: versions.page(session, 1, before=None, limit=50),
    "examples": lambda session: example_pages.page(session, 1, after=7, limit=50),
    "of a split": lambda session: example_pages.page(
        session, 1, after=7, limit=50, split="holdout"
    ),
    "of a status": lambda session: example_pages.page(
        session, 1, after=7, limit=50, status="expired"
    ),
    "of an external id": lambda session: example_pages.page(
        session, 1, after=0, limit=50, external_id="x"
    ),
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_needs_neither_a_scan_nor_a_sort(database: Database, page: str) -> None:
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    with database.read() as session:
        connection = session.connection()
        event.listen(connection, "before_cursor_execute", note)
        PAGES[page](session)
        event.remove(connection, "before_cursor_execute", note)
        [(statement, parameters)] = asked
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    steps = [row[-1] for row in plan]
    assert steps
    assert all(step.startswith("SEARCH") and "INDEX" in step for step in steps), steps


def test_a_client_has_a_bounded_number_of_adapters(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "MOST_ADAPTERS", 2)
    for name in ("one", "two"):
        new_adapter(database, name)
    with pytest.raises(adapters.TooManyAdaptersError):
        new_adapter(database, "three")
    with pytest.raises(adapters.AdapterExistsError):
        new_adapter(database, "two")
