"""Temporary files go with the process, and those of a killed one when the next one begins."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.trainer.predictor_child import PredictorChild
from tests.trainer.workers import Worker, at, run_to_the_end, write_spec


def test_a_table_of_weights_that_a_killed_worker_left_goes_with_the_next(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "of-everybody"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    write_spec(home, 1, engine="onnx_cpu", steps=1)
    spec = home / "runs/1/spec.json"
    spec.write_text(spec.read_text().replace('"threads"', '"form": "table", "threads"'))
    worker = Worker(home, 1, at("kill", event="phase", phase="training"))
    code, _ = worker.wait()
    assert code == -signal.SIGKILL
    [left] = (home / "tmp").glob("lorad-tables-*")
    assert sum(path.stat().st_size for path in left.iterdir()) > 10_000

    predictor = PredictorChild(home)
    assert next(iter(predictor)) == {"event": "ready"}
    assert not list((home / "tmp").iterdir()), "it holds the lock, so they are nobody's"
    assert predictor.end()[0] == 0
    assert not (home / "tmp").exists()
    run_to_the_end(home, 1)
    assert not (home / "tmp").exists()
    assert not list(elsewhere.iterdir())


def test_whoever_does_not_get_the_lock_removes_nothing(home: Path) -> None:
    predictor = PredictorChild(home)
    assert next(iter(predictor)) == {"event": "ready"}
    theirs = home / "tmp/theirs"
    theirs.write_bytes(b"in use")
    write_spec(home, 1)
    code, _ = Worker(home, 1).wait()
    assert code == 3
    assert theirs.read_bytes() == b"in use"
    assert predictor.end()[0] == 0
