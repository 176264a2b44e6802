"""When silence is a hang: pure, and with real workers that hang, are stopped, or are frozen."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu import doctor
from service.runs.hang import (
    LEAST_STEPS,
    LOADING_FLOORS,
    TESTING_SECONDS,
    TIMES_THE_MEDIAN,
    HangWatch,
)
from service.runs.worker_events import Event, parse
from tests.service.daemon import Daemon, add_stand_in_model

FLOOR = 60.0
LOADING = FLOOR * LOADING_FLOORS


def step(seconds: float) -> Event:
    return parse(
        b'{"event":"step","run":1,"step":1,"total":9,"epoch":0.1,"loss":1.0,"learning_rate":0.1,'
        b'"seconds":%.6f}' % seconds
    )


def phase(name: str) -> Event:
    return parse(b'{"event":"phase","run":1,"phase":"%s"}' % name.encode())


def trained(seconds: float, steps: int = LEAST_STEPS) -> HangWatch:
    watch = HangWatch(FLOOR)
    watch.heard(phase("training"))
    for _ in range(steps):
        watch.heard(step(seconds))
    return watch


def seconds_until_hung(watch: HangWatch) -> int:
    return next(count for count in range(1, 100_000) if watch.look(1.0) is not None)


@pytest.mark.parametrize(
    ("of_a_step", "limit"), [(0.01, FLOOR), (6, FLOOR), (20, 200), (600, 6000)]
)
def test_ten_median_steps_but_never_less_than_the_floor(of_a_step: float, limit: float) -> None:
    assert seconds_until_hung(trained(of_a_step)) == limit


def test_one_slow_step_changes_no_median() -> None:
    watch = trained(10, steps=20)
    watch.heard(step(5000))
    assert watch.limit() == 100


def test_before_the_first_steps_and_between_phases_it_may_take_long() -> None:
    watch = HangWatch(FLOOR)
    assert watch.limit() == LOADING
    watch.heard(phase("training"))
    assert watch.limit() == LOADING
    watch.heard(step(0.1))
    watch.heard(step(0.1))
    assert watch.limit() == LOADING
    watch.heard(step(0.1))
    assert watch.limit() == FLOOR
    watch.heard(phase("evaluating_after"))
    assert watch.limit() == LOADING
    assert seconds_until_hung(watch) == LOADING


def test_a_self_test_of_an_engine_has_the_time_that_the_worker_gives_it() -> None:
    watch = HangWatch(1.0)
    watch.heard(phase("testing_engine"))
    assert watch.limit() == TESTING_SECONDS > doctor.SECONDS
    watch.heard(phase("loading"))
    assert watch.limit() == LOADING_FLOORS


def test_every_event_is_a_sign_of_life() -> None:
    watch = trained(0.1)
    for _ in range(5):
        for _ in range(int(FLOOR) - 1):
            assert watch.look(1.0) is None
        watch.heard(parse(b'{"event":"checkpoint","run":1,"step":5}'))
    assert seconds_until_hung(watch) == FLOOR


@given(st.floats(0.01, 1000), st.floats(0.01, 1.0))
def test_a_worker_that_rests_as_told_never_hangs(of_a_step: float, duty: float) -> None:
    """At most two steps with their rests go by between two signs: one broken off, one whole."""
    watch = trained(of_a_step)
    watch.set_duty(duty)
    assert watch.limit() >= 2 * of_a_step / duty
    assert watch.limit() == pytest.approx(max(FLOOR, TIMES_THE_MEDIAN * of_a_step / duty), rel=1e-3)


def test_a_rest_begun_at_a_low_duty_is_borne_with_after_it_rises() -> None:
    watch = trained(10)
    watch.set_duty(0.1)
    watch.set_duty(1)
    assert watch.limit() == 1000
    watch.heard(step(10))
    assert watch.limit() == 100


def test_what_nobody_listens_to_is_no_silence() -> None:
    watch = trained(0.1)
    watch.listen(False)
    assert all(watch.look(1.0) is None for _ in range(1000))
    watch.listen(True)
    assert seconds_until_hung(watch) == FLOOR


def test_the_words_tell_how_long_and_what_is_usual() -> None:
    words = trained(20).look(500)
    assert words == "no sign of life for 500 s; a step takes 20.0 s as a rule; it was killed"
    assert HangWatch(FLOOR).look(LOADING) == "no sign of life for 900 s; it was killed"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that calls three seconds of silence a hang."""
    home = tmp_path_factory.mktemp("strict") / "home"
    add_stand_in_model(home)
    environment = {"LORAD_HANG_SECONDS": "3", "LORAD_RETRY_SECONDS": "0.2"}
    with Daemon(home, environment=environment) as daemon:
        yield daemon


def rows(daemon: Daemon, kind: str) -> list[str]:
    query = {"adapter": daemon.name, "kind": kind}
    entries: list[dict[str, Any]] = daemon.http.get("/v1/history", params=query).json()["entries"]
    return [entry["message"] for entry in entries]


@pytest.mark.parametrize("how", ["hang", "SIGSTOP"])
def test_a_worker_that_hangs_is_killed_and_its_run_goes_on(strict: Daemon, how: str) -> None:
    strict.name = how.lower()
    strict.create_adapter()
    strict.post_examples()
    strict.script(suffers=how, suffers_at=8, steps=14)
    run_id = strict.train()
    run = strict.wait_for(run_id, lambda run: run["finished_at"] is not None, 40)
    assert (run["status"], run["resumed_from"]) == ("completed", 5)
    assert (run["setbacks"]["crashes"], run["setbacks"]["kills"]) == (1, 0)
    [hung] = rows(strict, "run-hung")
    assert "crashed at step 7, the first time: hung: no sign of life for 3 s" in hung
    assert rows(strict, "run-killed") == rows(strict, "run-crashed") == []


def frozen(daemon: Daemon, seconds: float) -> None:
    """Stop daemon and worker, as Android's freezer does, and let them go on."""
    processes = (daemon.process.pid, daemon.worker_pid())
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in processes:
        os.kill(pid, signal.SIGCONT)


def test_a_frozen_phone_is_no_hang(strict: Daemon) -> None:
    strict.name = "frozen"
    strict.create_adapter()
    strict.post_examples()
    strict.script(steps=60, step_seconds=0.1)
    run_id = strict.train()
    strict.wait_for(run_id, lambda run: run["step"] >= 5)
    worker = strict.worker_pid()
    frozen(strict, 6)
    run = strict.wait_for(run_id, lambda run: run["step"] >= 20)
    assert strict.worker_pid() == worker
    run = strict.wait_until_ended(run_id)
    assert (run["status"], run["resumed_from"]) == ("completed", None)
    assert run["setbacks"] == {"kills": 0, "crashes": 0, "halvings": 0}


def test_a_worker_frozen_while_it_stops_is_given_its_time(home: Path) -> None:
    with Daemon(home, environment={"LORAD_STOP_SECONDS": "3"}) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        daemon.script(steps=100, step_seconds=1.0)
        run_id = daemon.train()
        daemon.wait_for(run_id, lambda run: run["step"] >= 2)
        assert daemon.steer(run_id, "pause").status_code == 202
        frozen(daemon, 5)
        run = daemon.wait_until_ended(run_id)
        assert run["status"] == "paused"
        assert "did not stop in time" not in daemon.log()
        assert run["checkpoint_step"] == run["step"]
