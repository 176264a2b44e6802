"""Ranges hold exactly the ids they were made of."""

from hypothesis import given
from hypothesis import strategies as st

from storage.id_ranges import count_in, ranges

ids = st.lists(st.integers(min_value=1, max_value=60) | st.integers(min_value=1, max_value=2**62))


@given(ids)
def test_ranges_are_the_fewest_and_hold_exactly_the_ids(given_ids: list[int]) -> None:
    found = ranges(given_ids)
    inside = {one for first, last in found for one in range(first, last + 1)}
    assert inside == set(given_ids)
    assert all(first <= last for first, last in found)
    assert all(found[i][1] + 1 < found[i + 1][0] for i in range(len(found) - 1))


@given(ids, ids)
def test_counting_is_what_sets_say(made_of: list[int], asked: list[int]) -> None:
    assert count_in(ranges(made_of), asked) == len(set(made_of) & set(asked))


def test_ten_thousand_neighbours_are_one_range() -> None:
    assert ranges(reversed(range(1, 10_001))) == [[1, 10_000]]
    assert ranges([]) == []
    assert count_in([], [1]) == 0
