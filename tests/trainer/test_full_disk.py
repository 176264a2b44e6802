"""A run whose disk is really full stops with the reason, and later ends as if nothing had been.

The home lies on a small file system of its own, as in `tests.service.test_full_disk`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.database import Database
from tests.service.test_full_disk import IS_ROOT, as_root
from tests.trainer.workers import Worker, adapter_bytes, at, manifest_of, run_to_the_end, write_spec

pytestmark = pytest.mark.slow

SETTINGS = {"steps": 5, "batch_size": 4, "checkpoint_every_steps": 2}
STEP_3 = {"event": "step", "step": 3}
EXPORTING = {"event": "phase", "phase": "exporting"}


@pytest.mark.skipif(IS_ROOT, reason="is root already: the tests below run by themselves")
def test_as_root_of_a_namespace() -> None:
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("neither root nor allowed to make a namespace: no small disk can be mounted")
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(["unshare", "-Urm", *tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.fixture
def small(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home on eight megabytes; the database is open, as the daemon has it."""
    disk = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    try:
        shutil.copytree(home, disk, dirs_exist_ok=True)
        with Database(disk / "lorad.db") as database, database.read():
            yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@as_root
def test_wherever_the_disk_fills_up_the_run_stops_and_later_gives_the_same_bytes(
    small: Path,
) -> None:
    write_spec(small, 1, **SETTINGS)
    straight = run_to_the_end(small, 1)
    expected, metrics = adapter_bytes(small, 1), manifest_of(small, straight[-1])["metrics"]
    cases: list[tuple[dict[str, Any], int, int | None]] = [
        ({"event": "phase", "phase": "evaluating_before"}, 0, None),
        (STEP_3, 0, 2),
        (STEP_3, 40, 2),
        (EXPORTING, 12, 5),
    ]
    for run_id, (moment, kilobytes, saved) in enumerate(cases, start=2):
        write_spec(small, run_id, **SETTINGS)
        worker = Worker(small, run_id, at("fill disk", kilobytes, **moment))
        code, events = worker.wait()
        stopped = events[-1]
        assert stopped["event"] == "stopped", (moment, kilobytes, events[-1])
        assert stopped["reason"] == "the disk is full: no space is left on it"
        assert stopped["step"] == (saved or 0)
        assert code == (76 if saved is None else 75)
        assert not list(small.rglob(".tmp-*")), (moment, kilobytes)
        folders = sorted(path.name for path in small.glob(f"runs/{run_id}/checkpoints/*"))
        assert folders[-1:] == ([] if saved is None else [f"step-{saved:08d}"])
        assert not list(small.glob(f"adapters/*/versions/run-{run_id:08d}"))

        (small / "filler").unlink()
        rest = run_to_the_end(small, run_id)
        started = next(event for event in rest if event["event"] == "started")
        assert started["resumed_from"] == saved
        assert adapter_bytes(small, run_id) == expected
        manifest = manifest_of(small, rest[-1])
        assert manifest["metrics"] == metrics
        assert manifest["exact_resume"] is True
        shutil.rmtree(small / f"adapters/1/versions/run-{run_id:08d}")


@as_root
def test_a_full_disk_when_it_is_asked_to_stop_is_the_reason_it_gives(small: Path) -> None:
    write_spec(small, 1, **SETTINGS)
    script = [at("fill disk", 0, event="step", step=3), at("terminate", event="step", step=3)]
    code, events = Worker(small, 1, *script).wait()
    assert code == 75
    assert json.dumps(events[-1]["reason"]) == '"the disk is full: no space is left on it"'
    assert events[-1]["step"] == 2
