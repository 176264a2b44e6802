"""Deleting while the real worker trains: the run goes on without, and no byte stays behind."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.daemon import Daemon, add_tiny_model

CANARY = "canary-5e11"
STEPS = 120


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Daemon]:
    home = tmp_path / "home"
    add_tiny_model(home)
    with Daemon(home, worker="trainer.worker") as daemon:
        yield daemon


def files_with(home: Path, text: str) -> list[str]:
    return [
        path.relative_to(home).as_posix()
        for path in home.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def delete(daemon: Daemon, example_id: int) -> None:
    """Returns once every trace is gone."""
    response = daemon.http.delete(daemon.path(f"/examples/{example_id}"))
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["run"] is not None
    deadline = time.monotonic() + 30
    while answer["erased"] != "done":
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
        answer = daemon.http.get(f"/v1/erasures/{response.json()['erasure']}").json()


@pytest.mark.slow
def test_a_run_at_work_goes_on_without_what_is_deleted(real: Daemon) -> None:
    real.create_adapter(training={"steps": STEPS, "learning_rate": 0.01})
    given = [
        {"input": f"{CANARY}-{number}- {label}", "label": label, "split": split}
        for split, numbers in (("train", range(20)), ("holdout", range(20, 40)))
        for number in numbers
        for label in ("now", "later")
    ]
    response = real.http.post(real.path("/examples"), json={"examples": given})
    assert response.status_code == 201, response.text
    ids = [example["id"] for example in response.json()["examples"]]
    assert files_with(real.home, f"{CANARY}-7-")
    run_id = real.train()
    both, held_out = ids[14:16], ids[60]  # the seventh number with either label
    real.wait_for(run_id, lambda run: run["step"] >= 10, seconds=120)
    for example_id in both:
        delete(real, example_id)
    assert files_with(real.home, f"{CANARY}-7-") == []
    real.wait_for(run_id, lambda run: run["step"] >= 30, seconds=120)
    delete(real, held_out)
    run = real.wait_until_ended(run_id, seconds=240)
    assert (run["status"], run["error"]) == ("completed", None), run
    assert (run["forgotten"], run["exact_resume"]) == (3, True)
    version = real.http.get(real.path("/versions/1")).json()
    assert version["metrics"]["train"] == 38
    assert version["metrics"]["holdout"] == 39
    measured = [row["example_id"] for row in version["holdout_rows"]]
    assert measured == [one for one in ids[40:] if one != held_out]
    assert all(row["label"] in ("now", "later") for row in version["holdout_rows"])
    assert version["seen_deleted"] == 3
    assert files_with(real.home, f"{CANARY}-7-") == []
    assert all(
        path.endswith(("lorad.db", "lorad.db-wal")) for path in files_with(real.home, CANARY)
    )
