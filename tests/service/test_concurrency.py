"""Many at once on real sockets, while a worker trains, a reader lingers, or SIGKILL comes."""

import http.client
import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.app import REQUEST_THREADS
from storage.database import BUSY_TIMEOUT_MS, READERS_MOST
from tests.service.daemon import Daemon

CLIENTS = 50


class Connection:
    """One client's keep-alive connection, lighter than httpx."""

    def __init__(self, daemon: Daemon) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {daemon.token}"}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        sent = None if body is None else json.dumps(body)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if sent is not None:
            given["Content-Type"] = "application/json"
        self._http.request(method, path, sent, self._headers | given)
        response = self._http.getresponse()
        return response.status, json.loads(response.read())


def all_at_once(daemon: Daemon, count: int, act: Callable[[int, Connection], Any]) -> list[Any]:
    """What ``act(number, connection)`` gave in ``count`` threads that began together."""
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        connection = Connection(daemon)
        barrier.wait(30)
        return act(number, connection)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def ids_of(daemon: Daemon) -> list[int]:
    with closing(sqlite3.connect(daemon.home / "lorad.db")) as database:
        return [row[0] for row in database.execute("SELECT id FROM examples ORDER BY id")]


@contextmanager
def transaction(daemon: Daemon, begin: str) -> Iterator[None]:
    with closing(sqlite3.connect(daemon.home / "lorad.db", isolation_level=None)) as other:
        other.execute(begin)
        other.execute("SELECT count(*) FROM examples").fetchone()
        yield
        other.execute("ROLLBACK")


def example(text: str) -> dict[str, str]:
    return {"input": text, "label": "now", "split": "train"}


def test_fifty_post_while_a_worker_claims_and_trains_and_nothing_is_lost(daemon: Daemon) -> None:
    daemon.create_adapter()
    before = daemon.post_examples(train=5, holdout=5)
    daemon.script(steps=20, step_seconds=0.05)
    run_id = daemon.train()
    path = daemon.path("/examples")

    def post(number: int, connection: Connection) -> list[tuple[int, Any]]:
        batches = [
            {"examples": [example(f"{number} {batch} {each}") for each in range(3)]}
            for batch in range(4)
        ]
        return [connection.ask("POST", path, batch) for batch in batches]

    answers = [answer for each in all_at_once(daemon, CLIENTS, post) for answer in each]
    assert Counter(status for status, _ in answers) == {201: CLIENTS * 4}
    given = [one["id"] for _, answer in answers for one in answer["examples"]]
    assert len(given) == CLIENTS * 4 * 3
    assert ids_of(daemon) == sorted([*before, *given])
    assert daemon.wait_until_ended(run_id)["status"] == "completed"
    counts = daemon.adapter()["examples"]
    assert counts["train"] + counts["holdout"] == len(before) + len(given)
    assert counts["pending"] == len(given)
    assert "unhandled" not in daemon.log()


def test_a_hundred_get_and_none_waits_for_a_reader_of_the_database(daemon: Daemon) -> None:
    daemon.create_adapter()
    daemon.post_examples()
    idle = len(list(Path(f"/proc/{daemon.process.pid}/task").iterdir()))

    def get(number: int, connection: Connection) -> list[int]:
        return [connection.ask("GET", daemon.path())[0] for _ in range(5)]

    answers = all_at_once(daemon, 100, get)
    assert Counter(status for each in answers for status in each) == {200: 500}
    busy = len(list(Path(f"/proc/{daemon.process.pid}/task").iterdir()))
    assert busy - idle <= REQUEST_THREADS < READERS_MOST


def test_of_many_creating_one_name_one_wins(daemon: Daemon) -> None:
    body = {"name": "twin", "base_model": "tiny"}
    answers = all_at_once(daemon, 12, lambda _, c: c.ask("POST", "/v1/adapters", body))
    assert Counter(status for status, _ in answers) == {201: 1, 409: 11}
    assert len(daemon.http.get("/v1/adapters").json()["adapters"]) == 1


def test_of_many_changing_the_same_settings_one_wins(daemon: Daemon) -> None:
    daemon.create_adapter()
    tag = daemon.http.get(daemon.path()).headers["etag"]

    def change(number: int, connection: Connection) -> tuple[int, Any]:
        return connection.ask("PATCH", daemon.path(), {"max_tokens": 100 + number}, If_Match=tag)

    answers = all_at_once(daemon, 12, change)
    assert Counter(status for status, _ in answers) == {200: 1, 412: 11}
    [changed] = [answer["max_tokens"] for status, answer in answers if status == 200]
    assert daemon.adapter()["max_tokens"] == changed
    assert daemon.http.get(daemon.path()).headers["etag"] != tag


def test_many_posts_under_one_key_are_one(daemon: Daemon) -> None:
    daemon.create_adapter()

    def post(number: int, connection: Connection) -> tuple[int, Any]:
        path = daemon.path("/examples")
        return connection.ask("POST", path, example("once"), Idempotency_Key="one key")

    answers = all_at_once(daemon, 12, post)
    assert {status for status, _ in answers} == {201}
    assert len({answer["examples"][0]["id"] for _, answer in answers}) == 1
    assert len(ids_of(daemon)) == 1


def test_of_many_starting_a_run_all_mean_the_same(daemon: Daemon) -> None:
    daemon.create_adapter()
    daemon.post_examples()
    daemon.script(steps=10, step_seconds=0.05)
    answers = all_at_once(daemon, 12, lambda _, c: c.ask("POST", daemon.path("/runs"), {}))
    assert set(Counter(status for status, _ in answers)) <= {202, 409}
    assert len({answer["id"] for status, answer in answers if status == 202}) == 1
    assert len(daemon.http.get(daemon.path("/runs")).json()["runs"]) == 1


def test_a_reader_that_lingers_delays_nobody(daemon: Daemon) -> None:
    daemon.create_adapter()
    with transaction(daemon, "BEGIN"):
        ids = [daemon.post_examples(train=1, holdout=0)[0]]
        for number in range(50):
            started = time.monotonic()
            response = daemon.http.post(daemon.path("/examples"), json=example(str(number)))
            assert response.status_code == 201, response.text
            assert time.monotonic() - started < BUSY_TIMEOUT_MS / 1000
            ids.append(response.json()["examples"][0]["id"])
        assert daemon.adapter()["examples"]["train"] == 51
    assert ids_of(daemon) == ids


def test_a_writer_that_lingers_is_a_503_to_be_tried_again(daemon: Daemon) -> None:
    daemon.create_adapter()
    with transaction(daemon, "BEGIN IMMEDIATE"), ThreadPoolExecutor(1) as thread:
        late = thread.submit(daemon.http.post, daemon.path("/examples"), json=example("late"))
        time.sleep(0.2)
        status, answer = Connection(daemon).ask("GET", daemon.path())  # readers never wait
        assert (status, answer["examples"]["train"]) == (200, 0)
        response = late.result()
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    assert "locked" in response.json()["detail"]
    assert daemon.http.post(daemon.path("/examples"), json=example("late")).status_code == 201
    assert len(ids_of(daemon)) == 1


@pytest.mark.parametrize("accepted_before", [20, 60])
def test_what_was_accepted_in_a_burst_outlives_sigkill(
    daemon: Daemon, accepted_before: int
) -> None:
    daemon.create_adapter()
    accepted: list[int] = []
    path = daemon.path("/examples")

    def post(number: int, connection: Connection) -> None:
        try:
            for each in range(1000):
                status, answer = connection.ask("POST", path, example(f"{number} {each}"))
                assert status == 201
                accepted.append(answer["examples"][0]["id"])
        except (OSError, http.client.HTTPException):
            return

    def kill_in_the_middle() -> None:
        while len(accepted) < accepted_before:
            time.sleep(0.001)
        daemon.process.kill()

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    all_at_once(daemon, 8, post)
    killer.join()
    daemon.kill()
    daemon.start()
    kept = ids_of(daemon)
    assert len(accepted) >= accepted_before
    assert set(accepted) <= set(kept)
    assert len(kept) - len(accepted) <= 8  # committed, but the answer came too late
    assert daemon.adapter()["examples"]["train"] == len(kept)
