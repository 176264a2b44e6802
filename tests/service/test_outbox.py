"""Lines into a pipe that fills up: whole, in order, and without anybody waiting."""

import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.outbox import Outbox
from service.predictions.patience import Patience
from tests.service.daemon import until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def test_more_than_a_pipe_holds_arrives_whole_and_in_order(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    outbox = Outbox(writing)
    lines = [b"%d " % number + b"x" * (number * 40_000) + b"\n" for number in range(12)]
    begun = time.monotonic()
    for line in lines:
        outbox.put(line)
    assert time.monotonic() - begun < 60
    expected = b"".join(lines)
    received = b""
    while len(received) < len(expected):
        received += os.read(reading, 100_000)
    assert received == expected
    outbox.put(b"after that\n")
    assert os.read(reading, 100) == b"after that\n"


def test_what_waits_already_is_not_put_twice(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    outbox = Outbox(writing)
    large = b"y" * 300_000 + b"\n"
    outbox.put(large)
    for _ in range(1000):
        outbox.put(b"examples\n")
    received = b""
    while not received.endswith(b"examples\n"):
        received += os.read(reading, 100_000)
    assert received == large + b"examples\n"


def test_a_reader_that_goes_and_a_pipe_that_is_closed_do_no_harm(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    outbox = Outbox(writing)
    outbox.put(b"z" * 300_000 + b"\n")
    os.close(reading)
    until(lambda: outbox._closed, 10)
    outbox.put(b"nobody reads this\n")
    outbox.close()


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 5), max_size=30), st.floats(0.5, 20), st.floats(0.1, 5))
def test_patience_ends_once_and_no_sign_of_life_lengthens_what_was_cut(
    slices: list[float], whole: float, cut: float
) -> None:
    patience = Patience(whole)
    patience.pass_time(whole / 2)
    patience.sign_of_life()
    assert patience.left == whole
    patience.shorten(cut, "first")
    patience.shorten(cut / 2, "second")
    assert (patience.left, patience.because) == (min(whole, cut), "first")
    for slice_ in slices:
        before = patience.left
        patience.pass_time(slice_)
        patience.sign_of_life()
        assert patience.left == before - slice_
