"""The bench of what saving costs counts what it says it counts."""

import json
import subprocess
import sys
from pathlib import Path


def test_a_small_bench_counts_the_saves_of_the_training_alone(
    tiny_folder: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "bench.checkpoint_cost", "--steps", "12", "--threads", "1"]
    options = ["--model", str(tiny_folder), "--folder", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["steps"] == 12
    assert found["saves"] == 2, "after steps 10 and 12; the one before the first isn't training"
    assert 0 < found["save_seconds"] < found["train_seconds"]
    assert abs(found["share"] - found["save_seconds"] / found["train_seconds"]) < 0.01
    assert list(tmp_path.iterdir()) == []
