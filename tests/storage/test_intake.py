"""Whatever is sent in whatever order: what is planned is what comes of it, and splits hold."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlmodel import select

from storage import examples
from storage.database import Database
from storage.examples import ExampleConflictError, NewExample
from storage.tables import Example
from tests.storage.conftest import new_adapter

GIVEN = st.builds(
    NewExample,
    input=st.sampled_from(["a", "A ", "b", "é", "long text"]),
    label=st.sampled_from(["now", "später"]),
    split=st.sampled_from([None, None, "train", "holdout"]),
    external_id=st.sampled_from([None, None, "1", "2", "3"]),
)
BATCH = st.lists(GIVEN, min_size=1, max_size=6)


@settings(max_examples=25)
@given(st.lists(st.tuples(BATCH, st.booleans()), min_size=1, max_size=6))
def test_plans_come_true_and_splits_hold(batches: list[tuple[list[NewExample], bool]]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Database(Path(folder) / "lorad.db") as database,
    ):
        adapter = new_adapter(database)
        rows: dict[str, tuple[int, str]] = {}
        for batch, train_between in batches:
            with database.read() as session:
                before = examples.counts(session, adapter.id)
            try:
                with database.write() as session:
                    plan = examples.plan(session, adapter, batch)
                    kept = examples.keep(session, adapter, plan)
            except ExampleConflictError:
                with database.read() as session:
                    assert examples.counts(session, adapter.id) == before
                continue
            with database.read() as session:
                after = examples.counts(session, adapter.id)
                found = {row.id: row for row in session.exec(select(Example))}
            assert after.bytes - before.bytes == plan.more_bytes
            assert after.pending - before.pending == plan.more_pending
            for sent, answer in zip(batch, kept, strict=True):
                row = found[answer.id]
                assert (row.label, row.split) == (sent.label, answer.split)
                assert row.input == sent.input
                assert sent.split in (None, row.split)
                if sent.external_id is not None:
                    known = rows.setdefault(sent.external_id, (row.id, row.split))
                    assert known == (row.id, row.split)
            sides = {(row.text_hash, row.split) for row in found.values()}
            assert len({digest for digest, _ in sides}) == len(sides)
            if train_between:
                with database.write() as session:
                    ids = list(examples.ids(session, adapter.id, "train"))
                    examples.mark_used(session, ids, unchanged_since=2**62)
