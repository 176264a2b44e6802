"""Deleting while the real worker keeps rows of examples: none of a deleted one stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.daemon import Daemon, add_tiny_model, kill
from tests.service.test_erasures import delete, until_done

TRAINING = {"steps": 300, "learning_rate": 0.01, "batch_size": 2}


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Daemon]:
    home = tmp_path / "home"
    add_tiny_model(home)
    with Daemon(home, worker="trainer.worker") as daemon:
        yield daemon


def kept(daemon: Daemon) -> set[int]:
    """Of which examples any file has rows; also of a file that is being written."""
    files = (daemon.home / "adapters/1").glob("prefix/*/*")
    return {int(path.name.lstrip(".").partition("-")[0]) for path in files}


@pytest.mark.slow
def test_however_a_deletion_meets_the_worker_no_row_of_it_stays(real: Daemon) -> None:
    real.create_adapter(top_layers=1, training=TRAINING)
    ids = real.post_examples(train=120, holdout=4)[:120]
    run_id = real.train()
    real.wait_for(run_id, lambda run: run["step"] >= 2, seconds=120)
    assert kept(real)
    gone: set[int] = set()
    for one in ids[:20]:  # while the worker comes to the examples one after the other
        until_done(real, delete(real, f"/examples/{one}")["erasure"])
        gone.add(one)
        assert not kept(real) & gone
    kill(real.worker_pid())
    assert real.wait_until_ended(run_id)["status"] == "interrupted"
    for one in ids[20:26]:  # while none is at work
        until_done(real, delete(real, f"/examples/{one}")["erasure"])
        gone.add(one)
        assert not kept(real) & gone
    assert real.train() == run_id
    run = real.wait_until_ended(run_id, seconds=240)
    assert (run["status"], run["error"], run["exact_resume"]) == ("completed", None, True), run
    left = kept(real)
    assert left  # for the next night
    assert not left & gone
    until_done(real, delete(real, "/examples?all=true")["erasure"])
    assert kept(real) == set()
    answer = real.http.delete("/v1/adapters/phone").json()
    until_done(real, answer["erasure"])
    assert not (real.home / "adapters/1").exists()
