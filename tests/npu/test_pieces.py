from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from npu.pieces import BUCKETS, ONE_MORE_PIECE, ranges, row_pieces


@given(rows=st.integers(0, 5000), buckets=st.sets(st.sampled_from(BUCKETS), min_size=1))
def test_pieces_cover_all_rows_in_order_and_fit_their_bucket(rows: int, buckets: set[int]) -> None:
    position = 0
    for piece, bucket in row_pieces(rows, sorted(buckets)):
        assert piece.start == position
        count = piece.stop - piece.start
        assert bucket in buckets
        assert 0 < count <= bucket
        assert count == bucket or piece.stop == rows, "only the last may be filled up"
        position = piece.stop
    assert position == rows


@given(rows=st.integers(1, 512))
def test_no_other_pieces_cost_less(rows: int) -> None:
    """Of all choices of up to four buckets, which is as many as ever pay."""
    chosen = [bucket for _, bucket in row_pieces(rows)]
    others = (
        [bucket for bucket in choice if bucket]
        for choice in product((0, *BUCKETS), repeat=4)
        if sum(choice) >= rows
    )
    least = min(sum(choice) + ONE_MORE_PIECE * len(choice) for choice in others)
    assert sum(chosen) + ONE_MORE_PIECE * len(chosen) == least


def test_a_few_rows_more_than_a_bucket_do_not_fill_the_next_one() -> None:
    found = {rows: [bucket for _, bucket in row_pieces(rows)] for rows in (40, 200, 300, 400, 520)}
    expected = {40: [64], 200: [256], 300: [256, 64], 400: [512], 520: [512, 8]}
    assert found == expected


@given(size=st.integers(1, 200_000), largest=st.integers(1, 50_000))
def test_ranges_cover_all_channels_in_order(size: int, largest: int) -> None:
    position = 0
    for piece in ranges(size, largest):
        assert piece.start == position
        assert 0 < piece.stop - piece.start <= largest
        position = piece.stop
    assert position == size


def test_heads_of_real_models() -> None:
    assert [piece.stop for piece in ranges(49_152, 16_384)] == [16_384, 32_768, 49_152]
    assert len(ranges(151_936, 16_384)) == 10
