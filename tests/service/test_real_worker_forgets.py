"""Deletions under the real worker: it goes on without them, and no file keeps a word of them."""

from collections.abc import Iterator

import pytest

from tests.service.daemon import Daemon, add_tiny_model, kill
from tests.service.test_erasures import delete, holders, until_done

STEPS = 150
TRAINING = {"steps": STEPS, "learning_rate": 0.01, "seed": 3}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("real")
    home = folder / "home"
    add_tiny_model(home)
    with Daemon(home, worker="trainer.worker") as daemon:
        yield daemon


def secret(number: int) -> str:
    return f"geheim-{number:03d}-ü"


@pytest.mark.slow
def test_a_run_goes_on_without_what_is_deleted(real: Daemon) -> None:
    real.create_adapter(labels=None, training=TRAINING)
    batch = [
        {"input": f"{secret(n)} input", "label": f"{secret(n)} label", "split": split}
        for split, numbers in (("train", range(24)), ("holdout", range(100, 116)))
        for n in numbers
    ]
    posted = real.http.post(real.path("/examples"), json={"examples": batch})
    ids = [example["id"] for example in posted.json()["examples"]]
    run_id = real.train()
    real.wait_for(run_id, lambda run: run["step"] >= 10, seconds=120)
    gone = [(ids[3], 3), (ids[20], 20), (ids[30], 106)]  # the last one is a holdout example
    for example, number in gone:
        answer = delete(real, f"/examples/{example}")
        assert answer["run"] == run_id
        until_done(real, answer["erasure"])
        assert holders(real.home, secret(number)) == []  # while the run is under way
    real.wait_for(run_id, lambda run: run["forgotten"] == 3, seconds=60)
    kill(real.worker_pid())
    assert real.wait_until_ended(run_id)["status"] == "interrupted"
    assert real.train() == run_id
    run = real.wait_until_ended(run_id, seconds=240)
    assert (run["status"], run["error"], run["version"]) == ("completed", None, 1), run
    assert (run["exact_resume"], run["forgotten"]) == (True, 3)
    version = real.http.get(real.path("/versions/1")).json()
    assert version["metrics"]["holdout"] == 15
    assert version["seen_deleted"] >= 2  # it had trained on two of them before they went
    for _, number in gone:
        assert holders(real.home, secret(number)) == []
        assert secret(number) not in real.log()
    until_done(real, delete(real, "/examples?all=true")["erasure"])
    for number in (*range(24), *range(100, 116)):
        assert holders(real.home, secret(number)) == []
    assert real.http.get(real.path("/versions/1")).json()["seen_deleted"] >= 38


@pytest.mark.slow
def test_a_run_that_loses_every_example_fails_and_says_so(real: Daemon) -> None:
    real.name = "emptied"
    real.create_adapter(labels=None, training=TRAINING)
    batch = [{"input": f"{secret(n)}", "label": "x", "split": "train"} for n in range(20)]
    assert real.http.post(real.path("/examples"), json={"examples": batch}).status_code == 201
    run_id = real.train()
    real.wait_for(run_id, lambda run: run["step"] >= 3, seconds=120)
    answer = delete(real, "/examples?all=true")
    assert (answer["deleted"], answer["run"]) == (20, run_id)
    run = real.wait_until_ended(run_id, seconds=120)
    assert run["status"] == "failed", run
    assert run["error"]
    assert "geheim" not in run["error"]
    until_done(real, answer["erasure"])
    assert holders(real.home, secret(1)[:8]) == []
