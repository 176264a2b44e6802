import pytest

from storage import adapters, example_pages, examples
from storage.database import Database
from storage.examples import Counts, ExampleConflictError, NewExample
from storage.tables import Adapter
from tests.storage.conftest import new_adapter


def test_load_texts_keeps_the_order_and_skips_what_is_gone(
    database: Database, adapter: Adapter
) -> None:
    with database.write() as session:
        rows = examples.add(session, adapter, [NewExample(f"text {n}", "now") for n in range(1200)])
        ids = [row.id for row in reversed(rows)]
        gone = rows[7]
        session.delete(gone)
    with database.read() as session:
        texts = examples.load_texts(session, [999_999, *ids])
    expected = [row for row in reversed(rows) if row is not gone]
    assert [text.id for text in texts] == [row.id for row in expected]
    assert [text.input for text in texts] == [row.input for row in expected]
    assert texts[0].changed_at == expected[0].changed_at


def test_existing_leaves_out_the_deleted_and_the_expired(
    database: Database, adapter: Adapter
) -> None:
    with database.write() as session:
        rows = examples.add(session, adapter, [NewExample(f"text {n}", "now") for n in range(1100)])
        ids = [row.id for row in rows]
        session.delete(rows[3])
        shell = rows[700]
        shell.input, shell.label, shell.text_hash, shell.status = None, None, None, "expired"
        session.add(shell)
    with database.read() as session:
        assert examples.existing(session, [*ids, 999_999]) == {*ids} - {ids[3], ids[700]}
        changed = examples.last_changed(session, [*ids, 999_999])
    assert changed == {row.id: row.changed_at for row in rows if row not in (rows[3], shell)}


def test_the_same_external_id_corrects_its_row(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        [row] = examples.add(session, adapter, [NewExample("a", "now", "holdout", "sms-1")])
        examples.mark_used(session, [row.id], unchanged_since=row.changed_at)
    with database.write() as session:
        [again] = examples.add(session, adapter, [NewExample("b", "later", external_id="sms-1")])
    assert again.id == row.id
    with database.read() as session:
        [kept] = example_pages.page(session, adapter.id, after=0, limit=10).examples
    assert (kept.input, kept.label, kept.split, kept.status) == ("b", "later", "holdout", "pending")


def test_sending_the_same_again_changes_nothing(database: Database, adapter: Adapter) -> None:
    same = NewExample("a", "now", external_id="sms-1")
    with database.write() as session:
        [row] = examples.add(session, adapter, [same])
        examples.mark_used(session, [row.id], unchanged_since=row.changed_at)
    with database.write() as session:
        examples.add(session, adapter, [same])
    with database.read() as session:
        [kept] = example_pages.page(session, adapter.id, after=0, limit=10).examples
    assert kept.status == "used"


def test_a_correction_can_not_change_the_split(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        examples.add(session, adapter, [NewExample("a", "now", "train", "sms-1")])
    with pytest.raises(ExampleConflictError) as caught, database.write() as session:
        examples.add(session, adapter, [NewExample("a", "now", "holdout", "sms-1")])
    assert [one.field for one in caught.value.conflicts] == ["split"]


def test_a_correction_can_not_move_a_holdout_text_into_training(
    database: Database, adapter: Adapter
) -> None:
    with database.write() as session:
        examples.add(session, adapter, [NewExample("asked later", "now", "holdout")])
        examples.add(session, adapter, [NewExample("other", "now", "train", "sms-1")])
    with pytest.raises(ExampleConflictError) as caught, database.write() as session:
        examples.add(session, adapter, [NewExample("Asked later", "now", external_id="sms-1")])
    assert [one.field for one in caught.value.conflicts] == ["input"]


def test_one_external_id_twice_in_a_batch_is_refused(database: Database, adapter: Adapter) -> None:
    batch = [NewExample(str(n), "now", external_id=name) for n, name in enumerate("abca")]
    with (
        pytest.raises(ExampleConflictError, match="earlier") as caught,
        database.write() as session,
    ):
        examples.add(session, adapter, batch)
    assert [(one.index, one.field) for one in caught.value.conflicts] == [(3, "external_id")]


def test_external_ids_belong_to_one_adapter(database: Database, adapter: Adapter) -> None:
    other = new_adapter(database, "mail")
    with database.write() as session:
        [mine] = examples.add(session, adapter, [NewExample("a", "now", external_id="1")])
        [theirs] = examples.add(session, other, [NewExample("b", "now", external_id="1")])
    assert mine.id != theirs.id
    with database.read() as session:
        [kept] = example_pages.page(session, adapter.id, after=0, limit=10).examples
    assert kept.input == "a"


def test_what_was_corrected_during_a_run_stays_pending(
    database: Database, adapter: Adapter
) -> None:
    with database.write() as session:
        rows = examples.add(session, adapter, [NewExample(str(n), "now", "train") for n in "ab"])
        run_created_at = rows[0].changed_at
        rows[1].changed_at = run_created_at + 1
        session.add(rows[1])
        session.flush()
        examples.mark_used(session, [row.id for row in rows], unchanged_since=run_created_at)
        assert examples.counts(session, adapter.id) == Counts(
            2,
            0,
            pending=1,
            used=1,
            expired=0,
            bytes=8,
        )


def test_pages(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        examples.add(session, adapter, [NewExample(str(n), "now") for n in range(5)])
    with database.read() as session:
        first = example_pages.page(session, adapter.id, after=0, limit=3)
        rest = example_pages.page(session, adapter.id, after=first.examples[-1].id, limit=2)
    assert [row.input for row in [*first.examples, *rest.examples]] == ["0", "1", "2", "3", "4"]
    assert (first.more, rest.more) == (True, False)


def test_a_page_of_long_texts_ends_early(database: Database, adapter: Adapter) -> None:
    long = "x" * 100_000
    with database.write() as session:
        new = [NewExample(f"{number}{long}"[:100_000], "now") for number in range(60)]
        examples.add(session, adapter, new)
    with database.read() as session:
        first = example_pages.page(session, adapter.id, after=0, limit=60)
        assert len(first.examples) == 21  # the first beyond 2 Mi characters is the last
        found = first
        total = len(found.examples)
        while found.more:
            found = example_pages.page(session, adapter.id, after=found.examples[-1].id, limit=60)
            total += len(found.examples)
    assert total == 60


def test_each_adapter_has_its_own_key(database: Database, adapter: Adapter) -> None:
    other = new_adapter(database, "mail")
    with database.read() as session:
        keys = [adapters.data_key(session, one.id) for one in (adapter, other)]
        assert {len(key) for key in keys} == {32}
        assert keys[0] != keys[1]
        with pytest.raises(LookupError, match="no adapter 99"):
            adapters.data_key(session, 99)
