"""The service's bench counts what it says it counts."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from bench.service import QUICK
from bench.service_load import Connection, Send, paced, percentile_ms
from bench.service_rows import LABELS, take, texts
from tests.house.repository import ROOT

FIGURES = {
    "idle_rss_mb",
    "rss_mb_after_100k",
    "start_seconds",
    "post_per_second",
    "post_per_second_8_clients",
    "bare_commits_per_second",
    "batch_examples_per_second",
    "ndjson_1000_examples_per_second",
    *(
        f"{verb}_{part}_ms{when}"
        for verb in ("post", "get")
        for part in ("p50", "p99")
        for when in ("", "_training")
    ),
    "status_ms_at_1m",
    "bytes_per_example",
}


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


@pytest.mark.slow
def test_a_small_bench_has_every_figure_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.service", "--quick", "--json", "--folder", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) >= FIGURES
    assert all(found[name] > 0 for name in FIGURES), found
    for name in FIGURES:
        if "_p50_" in name:
            assert found[name] <= found[name.replace("_p50_", "_p99_")]
    assert found["examples_at_1m"] == QUICK.stored + QUICK.asked
    assert found["held_out_rows_at_1m"] > QUICK.stored / 10  # the version that was adopted
    assert found["bytes_per_example"] > found["text_bytes_per_example"]
    assert found["rss_mb_after_100k"] >= found["idle_rss_mb"]
    assert found["idle_rss_mb"] < 100  # the goal is 80; other machines count pages differently
    assert list(tmp_path.iterdir()) == []
