"""The service's bench counts what it says it counts."""

import time
from collections.abc import Iterator
from typing import cast

from bench.service_load import Connection, Send, paced, percentile_ms
from bench.service_rows import LABELS, take, texts


def test_percentiles_are_measured_values() -> None:
    seconds = [number / 1000 for number in range(100, 0, -1)]
    assert percentile_ms(seconds, 50) == 50
    assert percentile_ms(seconds, 99) == 99
    assert percentile_ms(seconds, 100) == 100
    assert percentile_ms([0.007], 50) == percentile_ms([0.007], 99) == 7
    assert percentile_ms([0.001, 0.009], 99) == 9


class _Slow(Send):
    def by(self, connection: Connection) -> None:
        time.sleep(0.1)


class _Quick(Send):
    def by(self, connection: Connection) -> None:
        pass


def test_those_who_waited_behind_a_slow_request_are_counted_as_slow() -> None:
    def kind() -> Iterator[Send]:
        yield _Slow("GET", "/")
        while True:
            yield _Quick("GET", "/")

    [seconds] = paced(cast(Connection, None), [kind()], ticks=15, every=0.01)
    assert seconds[0] >= 0.1
    assert seconds[1] >= 0.08  # due after 10 ms, sent after 100
    assert seconds[4] >= 0.05
    assert min(seconds) < 0.02
    assert len(seconds) == 15


def test_texts_never_repeat_and_carry_only_known_labels() -> None:
    rows = take(texts(), 2000)
    assert len({row["input"] for row in rows}) == 2000
    assert {row["label"] for row in rows} == set(LABELS)
