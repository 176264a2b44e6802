from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from npu.pieces import BUCKETS, ranges, row_pieces


@given(rows=st.integers(0, 5000))
def test_pieces_cover_all_rows_in_order_and_fit_their_bucket(rows: int) -> None:
    position = 0
    for piece, bucket in row_pieces(rows):
        assert piece.start == position
        count = piece.stop - piece.start
        assert 0 < count <= bucket
        assert bucket in BUCKETS
        assert not any(count <= smaller < bucket for smaller in BUCKETS)
        position = piece.stop
    assert position == rows


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
