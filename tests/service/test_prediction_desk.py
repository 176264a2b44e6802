"""Who answers: the child, the training worker or nobody; and what becomes of each by and by."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.locks import is_held
from service.predictions.waiting_line import MOST_WAITING, MOST_WAITING_A_CLIENT
from tests.service.apps import pair
from tests.service.daemon import Daemon, add_stand_in_model, holding, is_alive, kill, until

IDLE = {"LORAD_PREDICT_IDLE_SECONDS": "0.5"}
SERVE = {"LORAD_PREDICT_WHILE_TRAINING": "serve"}


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MOST_WAITING + 16) as pool:
        yield pool


def ask(daemon: Daemon, name: str = "phone", **fields: Any) -> httpx.Response:
    return daemon.http.post(f"/v1/adapters/{name}/predict", json={"input": "now"} | fields)


def said(response: httpx.Response, status: int, words: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert words in problem["detail"], problem
    return problem


def log(daemon: Daemon) -> str:
    file = daemon.home / "predictor.log"
    return file.read_text() if file.exists() else ""


def under_way(daemon: Daemon) -> bool:
    """Whether the child is at a question."""
    text = log(daemon)
    return text.count("question") - 2 * text.count("is over") == 1


def lock_is_held(daemon: Daemon) -> bool:
    return is_held(daemon.home / "worker.lock")


def test_the_child_comes_with_a_question_and_leaves_after_idle_time(home: Path) -> None:
    with Daemon(home, environment=IDLE) as daemon:
        daemon.create_adapter()
        assert not daemon.worker_pids()
        for _ in range(5):  # on a busy machine a question may come later than it should
            assert ask(daemon).status_code == 200
            pid = daemon.worker_pid()
            pauses = []
            for _ in range(4):  # each question begins the idle time anew
                asked = time.monotonic()
                time.sleep(0.25)
                assert ask(daemon).status_code == 200
                pauses.append(time.monotonic() - asked)
            if max(pauses) < 0.5:
                break
        assert daemon.worker_pid() == pid
        until(lambda: not daemon.worker_pids())
        assert not is_alive(pid)
        assert not lock_is_held(daemon)
        assert ask(daemon).status_code == 200
        assert daemon.worker_pid() != pid


def test_a_training_takes_the_lock_from_an_idle_child_and_gives_it_back(own: Daemon) -> None:
    assert ask(own).status_code == 200
    child = own.worker_pid()
    own.script(steps=40, step_seconds=0.05)
    run = own.train()
    own.wait_for(run, lambda now: now["step"] >= 2)
    assert not is_alive(child)
    response = ask(own)
    said(response, 503, "a run trains now")
    assert response.headers["retry-after"] == "60"
    assert own.worker_pids() == {own.worker_pid()}
    ended = own.wait_until_ended(run)
    assert (ended["status"], ended["error"]) == ("completed", None)
    found = ask(own)
    assert (found.status_code, found.json()["version"]) == (200, 1), found.text
    until(lambda: len(own.worker_pids()) == 1)


def test_the_question_under_way_has_three_seconds_when_a_training_is_to_begin(
    own: Daemon, threads: ThreadPoolExecutor
) -> None:
    own.predictor(seconds=1.0)
    quick = threads.submit(ask, own)
    until(lambda: under_way(own))
    run = own.train()
    assert quick.result().status_code == 200
    assert own.wait_until_ended(run)["status"] == "completed"
    own.predictor(seconds=60, deaf=True, stubborn=True)
    slow = threads.submit(ask, own)
    until(lambda: under_way(own))
    begun = time.monotonic()
    run = own.train()
    said(slow.result(), 503, "a run trains now")
    assert own.wait_until_ended(run)["status"] == "completed"
    assert 2.5 < time.monotonic() - begun < 25
    own.predictor()
    assert ask(own).status_code == 200


def test_the_worker_answers_between_steps_if_it_may(home: Path) -> None:
    with Daemon(home, environment=SERVE) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        daemon.create_adapter("free", labels=None)
        add_stand_in_model(home, "large", "sha256:large")
        daemon.create_adapter("other", base_model="large")
        daemon.script(steps=60, step_seconds=0.1)
        run = daemon.train()
        daemon.wait_for(run, lambda now: now["step"] >= 1)
        worker = daemon.worker_pid()
        inputs = ["now", "later"] * 10 + ["x" * 80_000]  # more than a pipe holds
        response = daemon.http.post(daemon.path("/predict"), json={"inputs": inputs})
        assert response.status_code == 200, response.text
        labels = [one["label"] for one in response.json()["predictions"]]
        assert labels == ["now", "later"] * 10 + ["now"]
        assert ask(daemon, "free", max_tokens=2).json()["predictions"][0]["text"] == "one two"
        problem = said(ask(daemon, "other"), 503, "a run trains now")
        assert "sha256:large" in problem["detail"]
        assert "sha256:tiny" in problem["detail"]
        assert daemon.worker_pid() == worker
        assert daemon.wait_until_ended(run)["status"] == "completed"
        assert ask(daemon, "other").status_code == 200
        assert "question 3" not in (home / f"runs/{run}/worker.log").read_text()


def test_a_long_answer_of_the_worker_is_no_hang(home: Path) -> None:
    with Daemon(home, environment=SERVE | {"LORAD_HANG_SECONDS": "3"}) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        daemon.script(steps=20, step_seconds=0.05, predict_seconds=6)
        run = daemon.train()
        daemon.wait_for(run, lambda now: now["step"] >= 5)
        assert ask(daemon).status_code == 200
        ended = daemon.wait_until_ended(run)
        assert (ended["status"], ended["error"]) == ("completed", None)


def test_a_child_killed_amid_a_question_costs_that_one_only(
    own: Daemon, threads: ThreadPoolExecutor
) -> None:
    own.predictor(seconds=60)
    asked = threads.submit(ask, own)
    until(lambda: under_way(own))
    kill(own.worker_pid())
    response = asked.result()
    said(response, 503, "killed by SIGKILL")
    assert int(response.headers["retry-after"]) <= 5
    own.predictor()
    assert ask(own).status_code == 200
    kill(own.worker_pid())  # idle
    until(lambda: not own.worker_pids())
    assert ask(own).status_code == 200
    assert own.wait_until_ended(own.train())["status"] == "completed"


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ({"suffers": "failed"}, 502, "expected a model, found none"),
        ({"suffers": 7}, 502, "has ended with 7"),
        ({"suffers": "SIGSEGV"}, 503, "SIGSEGV"),
        ({"say": "nonsense"}, 502, "doesn't understand"),
        ({"say": '{"event": "answer", "id": NUMBER, "predictions": []}'}, 502, "expected 1 labels"),
        ({"say": '{"event": "answer", "id": NUMBER, "text": "a"}'}, 502, "expected 1 labels"),
        ({"say": '{"event": "refused", "id": NUMBER, "status": 777, "error": "odd"}'}, 502, "odd"),
    ],
)
def test_a_child_that_fails_or_talks_nonsense(
    shared: Daemon, script: dict[str, Any], status: int, words: str
) -> None:
    shared.predictor(**script)
    said(ask(shared), status, words)
    shared.predictor()
    assert ask(shared).status_code == 200


def test_nothing_is_left_of_a_daemon_that_is_killed(
    own: Daemon, threads: ThreadPoolExecutor
) -> None:
    own.predictor(seconds=60, deaf=True, stubborn=True)
    asked = threads.submit(ask, own)
    until(lambda: under_way(own))
    child = own.worker_pid()
    own.process.kill()
    own.process.wait(30)
    until(lambda: not is_alive(child), 5)
    with pytest.raises(httpx.HTTPError):
        asked.result()
    own.http.close()
    own.predictor()
    own.start()
    assert ask(own).status_code == 200


def test_a_daemon_that_ends_waits_for_no_answer(own: Daemon, threads: ThreadPoolExecutor) -> None:
    own.predictor(seconds=60)
    asked = threads.submit(ask, own)
    until(lambda: under_way(own))
    child = own.worker_pid()
    begun = time.monotonic()
    own.process.terminate()
    own.process.wait(30)
    assert time.monotonic() - begun < 15
    said(asked.result(), 503, "the daemon ends")
    assert not is_alive(child)


def waiting(
    daemon: Daemon, threads: ThreadPoolExecutor, number: int, client: httpx.Client | None = None
) -> list[Future[httpx.Response]]:
    http = client or daemon.http
    path = daemon.path("/predict")
    return [threads.submit(http.post, path, json={"input": "now"}) for _ in range(number)]


def test_so_many_wait_and_no_more(daemon: Daemon, threads: ThreadPoolExecutor) -> None:
    too_many = 3
    apps = [pair(daemon, name) for name in ("one", "two")]
    for http in (daemon.http, *(app.http for app in apps)):
        body = {"name": "phone", "base_model": "tiny", "labels": ["now", "later"]}
        assert http.post("/v1/adapters", json=body).status_code == 201
    daemon.predictor(seconds=60)
    asked = waiting(daemon, threads, 1)
    until(lambda: under_way(daemon))
    for http in (daemon.http, apps[0].http):
        more = waiting(daemon, threads, MOST_WAITING_A_CLIENT + too_many, http)
        until(lambda more=more: sum(one.done() for one in more) == too_many)
        for one in more:
            if one.done():
                said(one.result(), 429, f"at most {MOST_WAITING_A_CLIENT} predictions of one")
                assert int(one.result().headers["retry-after"]) > 0
        asked += [one for one in more if not one.done()]
    assert len(asked) == 1 + MOST_WAITING
    full = apps[1].http.post(daemon.path("/predict"), json={"input": "now"})
    said(full, 503, f"at most {MOST_WAITING} predictions")
    daemon.predictor()
    kill(daemon.worker_pid())
    statuses = sorted(one.result().status_code for one in asked)
    assert statuses == [200] * MOST_WAITING + [503]
    for app in apps:
        app.http.close()


def test_who_goes_away_is_not_answered(daemon: Daemon) -> None:
    daemon.create_adapter()
    daemon.predictor(seconds=60)
    body = b'{"input": "now"}'
    head = (
        f"POST {daemon.path('/predict')} HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\n"
        f"Authorization: Bearer {daemon.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", daemon.port)) as gone:
        gone.sendall(head + body)
        until(lambda: under_way(daemon))
    until(lambda: not under_way(daemon), 5)  # told to give it up
    child = daemon.worker_pid()
    daemon.predictor()
    assert ask(daemon).status_code == 200
    assert daemon.worker_pid() == child
    assert "unhandled" not in daemon.log()


def test_a_child_that_heeds_no_cancel_is_killed(home: Path) -> None:
    with Daemon(home, environment={"LORAD_PREDICT_SECONDS": "1"}) as daemon:
        daemon.create_adapter()
        daemon.predictor(seconds=60, deaf=True, stubborn=True)
        response = ask(daemon)
        said(response, 503, "no answer came within 1 s")
        daemon.predictor()
        assert ask(daemon).status_code == 200


def test_another_process_with_the_lock_is_not_joined(own: Daemon) -> None:
    with holding(own.home / "worker.lock"):
        said(ask(own), 503, "another process holds worker.lock")
        assert not own.worker_pids()
    assert ask(own).status_code == 200


def test_too_little_memory_is_said_before_a_model_is_loaded(home: Path) -> None:
    much = str(2**50)
    limits = {"LORAD_GATE_MEMORY_FLOOR_BYTES": much, "LORAD_GATE_MEMORY_START_BYTES": much}
    with Daemon(home, environment=limits) as daemon:
        daemon.create_adapter()
        said(ask(daemon), 503, "of memory to be had")
        assert not daemon.worker_pids()


def test_what_is_deleted_is_gone_at_once_and_the_child_with_it(own: Daemon) -> None:
    own.wait_until_ended(own.train())
    assert ask(own).json()["version"] == 1
    child = own.worker_pid()
    assert lock_is_held(own)
    answer = own.http.delete(own.path()).json()
    assert answer["erased"] == "done"
    assert not list((own.home / "adapters").glob("*/versions/*"))
    until(lambda: not is_alive(child))


def test_predictions_and_trainings_in_turns(own: Daemon, threads: ThreadPoolExecutor) -> None:
    """Never two with the lock (the second would end with 3), never a run that suffers from it."""
    own.script(steps=5, step_seconds=0.01)
    stop = threading.Event()
    statuses: set[int] = set()

    def keep_asking() -> None:
        while not stop.is_set():
            statuses.add(ask(own).status_code)

    asking = [threads.submit(keep_asking) for _ in range(2)]
    for _ in range(4):
        ended = own.wait_until_ended(own.train())
        assert (ended["status"], ended["error"]) == ("completed", None)
        time.sleep(0.2)
    stop.set()
    for one in asking:
        one.result()
    assert statuses == {200, 503}
    assert "ended with 3" not in own.log()
    assert "has ended with" not in own.log()
