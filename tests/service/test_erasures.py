"""What was deleted is searched for in every byte of the home, with readers and kills in the way."""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.apps import pair
from tests.service.daemon import Daemon, is_alive, kill

CANARY = "«kanari-ü-4711»"


def holders(home: Path, text: str = CANARY) -> list[str]:
    """The files of the home that hold the text, or a long enough part of it."""
    wanted = text.encode()[:-3]
    return [
        path.relative_to(home).as_posix()
        for path in sorted(home.rglob("*"))
        if path.is_file() and wanted in path.read_bytes()
    ]


def post(daemon: Daemon, text: str, **more: Any) -> int:
    body = {"input": text, "label": "now", "split": "train"} | more
    response = daemon.http.post(daemon.path("/examples"), json=body)
    assert response.status_code == 201, response.text
    example_id: int = response.json()["examples"][0]["id"]
    return example_id


def delete(daemon: Daemon, rest: str) -> dict[str, Any]:
    response = daemon.http.delete(daemon.path(rest))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def until_done(daemon: Daemon, erasure: int, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while daemon.http.get(f"/v1/erasures/{erasure}").json()["erased"] != "done":
        assert time.monotonic() < deadline, daemon.log()
        time.sleep(0.05)


@pytest.fixture
def own(daemon: Daemon) -> Daemon:
    daemon.create_adapter(labels=None, too_long="cut")
    daemon.post_examples()
    return daemon


READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    connection.execute(line)
    if line.strip() == "BEGIN":
        connection.execute("SELECT count(*) FROM examples").fetchone()
    print("done", flush=True)
"""


class Reader:
    """Another program that reads the database: no file of it is opened in this process.

    (A process that closes a file loses all of its locks on it: this one reads the files' bytes.)
    """

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, str(home / "lorad.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.say("BEGIN")

    def say(self, statement: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(statement, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def reader(own: Daemon) -> Iterator[Reader]:
    """A program in the middle of a read transaction."""
    reader = Reader(own.home)
    yield reader
    reader.process.kill()
    reader.process.communicate()


@pytest.mark.parametrize("size", [1, 1500])
def test_a_deleted_text_is_in_no_file_of_the_home(own: Daemon, size: int) -> None:
    example = post(own, CANARY * size, label=f"label {CANARY}", external_id=f"id {CANARY}")
    own.wait_until_ended(own.train())
    assert holders(own.home)  # the search can find it
    until_done(own, delete(own, f"/examples/{example}")["erasure"])
    assert holders(own.home) == []
    own.stop()
    assert holders(own.home) == []
    assert CANARY not in own.log()


def test_a_correction_erases_what_it_replaces(own: Daemon) -> None:
    post(own, f"old {CANARY}", external_id="e")
    post(own, "new", external_id="e")
    deadline = time.monotonic() + 20
    own.http.delete(own.path("/examples"), params={"external_id": "nothing"})
    delete(own, "/examples?all=true")  # any attempt takes all that is pending with it
    while holders(own.home):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_while_somebody_reads_it_is_pending_then_done(own: Daemon, reader: Reader) -> None:
    example = post(own, CANARY)
    answer = delete(own, f"/examples/{example}")
    assert answer["erased"] == "pending"
    assert holders(own.home)
    time.sleep(1.5)
    told = own.http.get(f"/v1/erasures/{answer['erasure']}").json()
    assert (told["erased"], told["erased_at"]) == ("pending", None)
    began = time.monotonic()
    post(own, "others are not kept waiting")
    assert time.monotonic() - began < 5
    reader.say("COMMIT")
    until_done(own, answer["erasure"])
    assert holders(own.home) == []


def test_a_killed_daemon_goes_on_erasing_at_its_next_start(own: Daemon, reader: Reader) -> None:
    example = post(own, CANARY)
    erasure = delete(own, f"/examples/{example}")["erasure"]
    own.kill()
    reader.say("COMMIT")
    reader.say("BEGIN")  # so that closing the last connection doesn't empty the log for us
    assert holders(own.home)
    own.start()
    time.sleep(0.5)
    reader.say("COMMIT")
    until_done(own, erasure)
    assert holders(own.home) == []


def test_a_deleted_version_is_not_taken_in_again(own: Daemon) -> None:
    """The daemon dies between the commit and the removal of the folder."""
    run_id = own.train()
    own.wait_until_ended(run_id)
    [folder] = own.home.glob(f"adapters/*/versions/run-{run_id:08d}")
    path = folder.relative_to(own.home).as_posix()
    own.kill()
    with sqlite3.connect(own.home / "lorad.db") as database:  # as the transaction does it
        database.execute("DELETE FROM versions")
        database.execute(
            "INSERT INTO erasures (client_id, what, examples, paths, requested_at) "
            "VALUES (1, 'version', 0, ?, 1)",
            [json.dumps([path])],
        )
    database.close()
    own.start()
    assert own.http.get(own.path("/versions")).json()["versions"] == []
    assert not folder.exists()
    until_done(own, 1)


def test_what_an_orphaned_worker_writes_into_a_deleted_adapter_goes_too(own: Daemon) -> None:
    """The daemon dies with a run under way, and the adapter is deleted while its worker lives."""
    own.script(steps=1200, step_seconds=0.05, deaf=True)
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] >= 1)
    worker = own.worker_pid()
    own.kill()
    assert is_alive(worker)
    own.start()
    answer = delete(own, "")
    assert answer["erased"] == "pending"  # until nobody writes there any more
    kill(worker)
    until_done(own, answer["erasure"])
    assert not (own.home / f"runs/{run_id}").exists()
    assert list((own.home / "adapters").iterdir()) == []


def test_deleting_among_posts_and_a_run_loses_and_keeps_the_right_ones(own: Daemon) -> None:
    own.script(steps=80, step_seconds=0.02)
    run_id = own.train()
    posted: list[int] = []
    deleted: list[int] = []
    statuses: set[int] = set()
    lock = threading.Lock()

    def app(number: int) -> None:
        for turn in range(12):
            one = own.http.post(
                own.path("/examples"), json={"input": f"{CANARY} {number} {turn}", "label": "now"}
            )
            with lock:
                statuses.add(one.status_code)
            example = one.json()["examples"][0]["id"]
            if turn % 2:
                gone = own.http.delete(own.path(f"/examples/{example}"))
                with lock:
                    statuses.add(gone.status_code)
                    deleted.append(example)
            else:
                with lock:
                    posted.append(example)

    threads = [threading.Thread(target=app, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == {201, 200}
    assert own.wait_until_ended(run_id)["status"] == "completed"
    with sqlite3.connect(own.home / "lorad.db") as database:
        kept = {row[0] for row in database.execute("SELECT id FROM examples")}
    database.close()
    assert kept >= set(posted)
    assert not kept & set(deleted)
    assert len(kept) == 50 + len(posted)
    until_done(own, delete(own, "/examples?all=true")["erasure"])
    assert holders(own.home) == []


def test_deleting_an_adapter_among_posts_answers_201_or_404(own: Daemon) -> None:
    statuses: list[int] = []

    def app() -> None:
        for turn in range(4000):
            body = {"input": f"{CANARY} {turn}", "label": "now"}
            status = own.http.post(own.path("/examples"), json=body).status_code
            statuses.append(status)
            if status == 404:
                return

    threads = [threading.Thread(target=app) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    answer = delete(own, "")
    for thread in threads:
        thread.join()
    assert set(statuses) <= {201, 404}
    assert 404 in statuses
    until_done(own, answer["erasure"])
    with sqlite3.connect(own.home / "lorad.db") as database:
        assert database.execute("SELECT count(*) FROM examples").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM example_counts").fetchone() == (0,)
    database.close()
    assert holders(own.home) == []


def test_deleting_a_client_among_its_requests_has_defined_answers(own: Daemon) -> None:
    with pair(own, "app") as app:
        assert app.http.post("/v1/adapters", json=new_adapter("a")).status_code == 201
        statuses: set[int] = set()

        def until_refused(ask: Callable[[int], httpx.Response]) -> None:
            for turn in range(4000):
                statuses.add(status := ask(turn).status_code)
                if status == 401:
                    return

        def create(number: int) -> None:
            def ask(turn: int) -> httpx.Response:
                body = new_adapter(f"a-{number}-{turn}")
                headers = {"Idempotency-Key": f"{number} {turn}"} if turn % 2 else {}
                return app.http.post("/v1/adapters", json=body, headers=headers)

            until_refused(ask)

        def send(number: int) -> None:
            def ask(turn: int) -> httpx.Response:
                body = {"input": f"{number} {turn}", "label": "now"}
                return app.http.post("/v1/adapters/a/examples", json=body)

            until_refused(ask)

        def train(number: int) -> None:
            until_refused(lambda turn: app.http.post("/v1/adapters/a/runs", json={}))

        threads = [
            threading.Thread(target=each, args=(number,))
            for each in (create, send, train)
            for number in range(3)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        answer = own.http.delete("/v1/clients/app")
        for thread in threads:
            thread.join()
    assert answer.status_code == 200, answer.text
    assert statuses <= {201, 202, 401, 404, 409}, statuses
    assert 401 in statuses
    until_done(own, answer.json()["erasure"])
    with sqlite3.connect(own.home / "lorad.db") as database:
        assert database.execute("SELECT count(*) FROM adapters").fetchone() == (1,)
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    database.close()


def new_adapter(name: str) -> dict[str, Any]:
    return {"name": name, "base_model": "tiny", "labels": None}


@pytest.mark.slow
def test_kills_at_any_instant_of_deletions_leave_no_erasure_undone(own: Daemon) -> None:
    """Deletions in a burst, a kill in their midst, and at the end nothing that was deleted."""
    for round_number in range(6):
        examples = [post(own, f"{CANARY} {round_number} {number}") for number in range(20)]
        gone: list[int] = []

        def burst(examples: list[int] = examples, gone: list[int] = gone) -> None:
            for example in examples:
                try:
                    response = own.http.delete(own.path(f"/examples/{example}"))
                except Exception:  # the daemon was killed: this deletion may or may not be
                    return
                assert response.status_code == 200
                gone.append(example)

        thread = threading.Thread(target=burst)
        thread.start()
        time.sleep(0.02 + 0.05 * round_number)
        own.process.kill()
        own.process.wait()
        thread.join()
        own.http.close()
        own.start()
        for example in gone:
            assert own.http.get(own.path(f"/examples/{example}")).status_code == 404
    until_done(own, delete(own, "/examples?all=true")["erasure"])
    with sqlite3.connect(own.home / "lorad.db") as database:
        open_ones = "SELECT count(*) FROM erasures WHERE erased_at IS NULL"
        assert database.execute(open_ones).fetchone() == (0,)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    assert holders(own.home) == []
