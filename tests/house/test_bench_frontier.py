"""The frontier's knee, its records, and the whole bench on a model that takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.frontier_knee import Point, find_knee, holdout_check, undominated
from bench.frontier_records import Records
from tests.house.repository import ROOT
from trainer.models.tiny import write_tiny_model

points = st.lists(
    st.builds(Point, st.uuids().map(str), st.floats(0.5, 4), st.floats(0, 1)),
    min_size=1,
    max_size=12,
)


def test_the_knee_is_where_bytes_stop_buying_exactness() -> None:
    curve = [Point("a", 0.56, 0.5), Point("b", 0.7, 0.02), Point("c", 1, 0.01), Point("d", 2, 0.0)]
    assert find_knee(curve).name == "b"
    assert find_knee([*curve, Point("worse", 0.75, 0.6)]).name == "b"
    in_bits = [Point(p.name, p.bytes_per_parameter * 8, p.gradient_change) for p in curve]
    assert find_knee(in_bits).name == "b", "the unit of bytes is no matter"
    assert find_knee([Point("a", 0.5, 0.4), Point("b", 0.9, 0.35), Point("c", 1, 0.01)]).name == "a"
    assert find_knee([Point("a", 0.5, 0.4), Point("b", 0.9, 0.4)]).name == "a"
    with pytest.raises(ValueError, match="found none"):
        find_knee([])


@given(points)
def test_no_precision_beats_the_knee_in_both(found: list[Point]) -> None:
    knee = find_knee(found)
    kept = undominated(found)
    assert knee in kept
    for point in found:
        cheaper = point.bytes_per_parameter < knee.bytes_per_parameter
        assert not (cheaper and point.gradient_change <= knee.gradient_change)
    sizes = [point.bytes_per_parameter for point in kept]
    assert sizes == sorted(set(sizes))


def test_the_holdout_is_the_check() -> None:
    losses = {"knee": [0.52, 0.5], "other": [0.5, 0.47], "third": [0.9, 0.8]}
    check = holdout_check(losses, "knee")
    assert check["best"] == "other"
    assert check["within_spread"]
    assert not holdout_check(losses, "third")["within_spread"]
    assert holdout_check({"knee": [0.5]}, "knee")["within_spread"] is None


def test_records_outlive_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "measurements.jsonl"
    records = Records(path)
    records.add("a", {"loss": 0.1})
    with path.open("a") as file:
        file.write('{"key": "b", "val')
    records = Records(path)
    assert records.get("b") is None
    records.add("b", {"loss": 0.3})
    again = Records(path)
    assert again.get("a") == {"loss": 0.1}
    assert again.get("b") == {"loss": 0.3}


@pytest.mark.slow
def test_the_bench_as_a_command(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    rows = [
        {"input": f"row {n}", "label": "yes" if n % 3 else "no", "split": side}
        for n, side in enumerate(["train"] * 36 + ["holdout"] * 6)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    formats = ("fp16", "int8", "int4", "int4_min")
    (tmp_path / "one_copy.json").write_text(json.dumps({f: {"both": 1.5} for f in formats}))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bench.frontier", str(out), "--json", "--threads", "1"]
    command += ["--source", str(tmp_path / "model"), "--rows", str(tmp_path / "rows.jsonl")]
    command += ["--steps", "1", "--examples", "3", "--shares", "0.4"]
    command += ["--one-copy", str(tmp_path / "one_copy.json")]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert json.loads((out / "frontier.json").read_text()) == result
    assert (out / "frontier.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    found = {point["name"]: point for point in result["points"]}
    changes = {name: found[name]["gradient"]["change"] for name in ("fp16", "int8", "int4")}
    assert 0 < changes["fp16"] < changes["int8"] / 3 < changes["int4"] / 9
    assert found["fp16"]["gradient"]["cosine"] > found["int4"]["gradient"]["cosine"] > 0.5
    assert found["int4_int8_0.4"]["bytes"] < found["int8"]["bytes"]
    assert changes["int8"] < found["int4_int8_0.4"]["gradient"]["change"] < changes["int4"]
    assert set(found["int4_int8_0.4"]["formats"]) == {"int4", "int8"}
    assert found["fp32"]["gradient"] is None
    assert found["fp32"]["context_bytes_per_parameter"] is None
    assert found["int8"]["context_bytes_per_parameter"] == pytest.approx(1.5)
    assert found["fp32"]["losses"][0] != found["int4"]["losses"][0]
    assert result["knee"]["name"] in found

    kept = (out / "measurements.jsonl").read_bytes()
    (out / "measurements.jsonl").write_bytes(kept[:-20])
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("training, seed") + again.stderr.count(": gradients") == 1
    assert json.loads(again.stdout)["points"] == result["points"]
