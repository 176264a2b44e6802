import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import examples
from storage.database import Database
from storage.examples import ExampleConflictError, NewExample
from storage.split import normalise, split_of, text_hash
from storage.tables import Adapter

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(TEXTS)
def test_normalising_twice_is_normalising_once(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(TEXTS)
def test_case_and_spacing_make_no_other_example(text: str) -> None:
    spaced = "\n ".join(text.split(" "))
    assert normalise(f"  {spaced}\t") == normalise(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Straße", "STRASSE"),
        ("ﬁne", "fine"),
        ("e\u0301", "é"),
        ("ａｂｃ", "abc"),  # noqa: RUF001
        ("a\u00a0b", "a b"),
    ],
)
def test_equal_when_normalised(one: str, other: str) -> None:
    assert text_hash(b"k" * 32, one) == text_hash(b"k" * 32, other)


def test_other_texts_and_other_keys_have_other_hashes() -> None:
    hashes = {
        text_hash(key, text) for key in (b"a" * 32, b"b" * 32) for text in ("now", "now!", "row")
    }
    assert len(hashes) == 6


def test_about_a_fifth_is_held_out() -> None:
    held_out = sum(split_of(text_hash(b"k" * 32, f"text {n}")) == "holdout" for n in range(5000))
    assert held_out == pytest.approx(1000, abs=5 * 28.3)  # five standard deviations of B(5000, .2)


def test_duplicates_share_a_split(database: Database, adapter: Adapter) -> None:
    with database.write() as session:
        for number in range(40):
            first, second = examples.add(
                session,
                adapter,
                [NewExample(f"Text {number}", "now"), NewExample(f" text  {number} ", "later")],
            )
            [third] = examples.add(session, adapter, [NewExample(f"TEXT {number}", "now")])
            assert first.split == second.split == third.split


@pytest.mark.parametrize("split", ["train", "holdout"])
def test_a_duplicate_follows_what_the_client_set(
    database: Database, adapter: Adapter, split: examples.Split
) -> None:
    with database.write() as session:
        for number in range(20):
            set_by_client = NewExample(f"text {number}", "now", split=split)
            [first] = examples.add(session, adapter, [set_by_client])
            [second] = examples.add(session, adapter, [NewExample(f"TEXT {number}", "now")])
            assert first.split == second.split == split


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_contradicting_split_is_refused(
    database: Database, adapter: Adapter, in_one_batch: bool
) -> None:
    batch = [NewExample("same", "now", split="train")]
    if not in_one_batch:
        with database.write() as session:
            examples.add(session, adapter, batch)
        batch = [NewExample("other", "now")]
    batch.append(NewExample("Same", "now", split="holdout"))
    with (
        pytest.raises(ExampleConflictError, match="train example already") as caught,
        database.write() as session,
    ):
        examples.add(session, adapter, batch)
    assert [(one.index, one.field) for one in caught.value.conflicts] == [(1, "split")]
    with database.read() as session:
        assert examples.counts(session, adapter.id).train == (0 if in_one_batch else 1)
