"""`lorad demo` for real, with the tiny random model: the daemon, the worker, HTTP and all."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "service.cli.main", "demo", "--tiny", "--engine", "torch_cpu"]

pytestmark = pytest.mark.slow


def environment(tmp_path: Path) -> dict[str, str]:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    return os.environ | {"TMPDIR": str(scratch), "HOME": str(tmp_path / "nobody")}


def living(home: Path) -> list[str]:
    """Command lines of the processes that work in this home."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            line = (folder / "cmdline").read_bytes()
            block = (folder / "environ").read_bytes()
        except OSError:
            continue
        if str(home).encode() in line + block and folder.name != str(os.getpid()):
            found.append(line.decode(errors="replace"))
    return found


def test_the_tiny_demo_trains_measures_and_keeps_its_adapter(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = subprocess.run(
        [*COMMAND, "--json", "--keep", str(kept)],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    summary = json.loads(line)
    assert (summary["train"], summary["holdout"], summary["steps"]) == (48, 16, 12)
    assert summary["engine"] == "torch_cpu"
    counts = summary["products"]["torch_cpu"]
    # Two layers of four fused products, forward and recomputed, in each of 12 steps at the least.
    assert counts["forward"] >= 2 * 4 * 12
    assert counts["input_gradient"] > 0
    assert summary["fallbacks"] == []
    # A random model gives each of 256 bytes about the same: ln 256 = 5.5; it learns which occur.
    assert summary["loss_before"] > 5 > summary["loss_after"]
    assert summary["verdict"] == "insufficient"
    assert summary["adapter"] == str(kept / "adapter")
    assert {path.name for path in (kept / "adapter").iterdir()} >= {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    # A phase shorter than the pause between two looks may go unseen; this line is always there.
    assert "posting examples" in done.stderr
    assert list((tmp_path / "tmp").glob("lorad-demo-*")) == []
    assert living(kept) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_training_it_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    child = subprocess.Popen(
        [*COMMAND, "--steps", "100000"],
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not list((tmp_path / "tmp").glob("*/home/runs/1/checkpoints/step-*")):
            assert child.poll() is None, child.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert living(tmp_path / "tmp")
        child.send_signal(number)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 1
    assert "nothing is left running" in said
    assert "Traceback" not in said
    assert list((tmp_path / "tmp").glob("lorad-demo-*")) == []
    assert living(tmp_path / "tmp") == []
