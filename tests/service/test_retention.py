"""Retention of a running daemon: bounds that are lowered, days that pass, shells that go."""

import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.service.daemon import Daemon
from tests.service.test_erasures import CANARY, holders, post

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def own(daemon: Daemon) -> Daemon:
    daemon.create_adapter(labels=None)
    return daemon


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def patch(daemon: Daemon, **retention: Any) -> None:
    response = daemon.http.patch(
        daemon.path(), json={"retention": retention}, headers={"If-Match": "*"}
    )
    assert response.status_code == 200, response.text


def counts(daemon: Daemon) -> dict[str, int]:
    found: dict[str, int] = daemon.adapter()["examples"]
    return found


def sql(daemon: Daemon, statement: str, *values: Any) -> None:
    """Change the stopped daemon's database."""
    connection = sqlite3.connect(daemon.home / "lorad.db")
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def test_a_lowered_bound_expires_the_oldest_and_they_are_erased(own: Daemon) -> None:
    old = [post(own, f"{CANARY} {n}") for n in range(3)]
    new = [post(own, f"newer {n}") for n in range(2)]
    patch(own, max_examples=2)
    assert (counts(own)["train"], counts(own)["expired"]) == (2, 3)
    shown = own.http.get(own.path("/examples")).json()["examples"]
    assert [(row["id"], row["status"]) for row in shown] == [
        *((one, "expired") for one in old),
        *((one, "pending") for one in new),
    ]
    assert {row["input"] for row in shown[:3]} == {None}
    own.stop()  # what is pending still goes at the next start
    own.start()
    until(lambda: holders(own.home) == [])


def test_a_post_beyond_the_bound_expires_the_oldest(own: Daemon) -> None:
    patch(own, max_examples=3)
    ids = [post(own, f"{n}") for n in range(5)]
    shown = own.http.get(own.path("/examples")).json()["examples"]
    assert [row["id"] for row in shown if row["status"] == "pending"] == ids[2:]


def test_many_at_once_are_all_gone_soon(own: Daemon) -> None:
    for start in range(0, 2500, 500):
        batch = [{"input": f"{start + n}", "label": "x"} for n in range(500)]
        response = own.http.post(own.path("/examples"), json={"examples": batch})
        assert response.status_code == 201
    patch(own, max_examples=10)
    until(lambda: counts(own)["expired"] == 2490)
    left = counts(own)
    assert left["train"] + left["holdout"] == 10


def test_days_that_passed_while_the_daemon_was_off_count(own: Daemon) -> None:
    patch(own, keep_days=7)
    first, second = post(own, CANARY), post(own, "young")
    own.stop()
    now = time.time_ns() // 1_000_000
    sql(own, "UPDATE examples SET created_at = ? WHERE id = ?", now - 8 * DAY_MS, first)
    sql(own, "UPDATE examples SET created_at = ? WHERE id = ?", now - 6 * DAY_MS, second)
    own.start()
    until(lambda: counts(own)["expired"] == 1)
    assert own.http.get(own.path(f"/examples/{second}")).json()["status"] == "pending"
    until(lambda: holders(own.home) == [])
    own.stop()
    sql(own, "UPDATE examples SET changed_at = ? WHERE id = ?", now - 91 * DAY_MS, first)
    own.start()
    until(lambda: counts(own)["expired"] == 0)
    assert own.http.get(own.path(f"/examples/{first}")).status_code == 404


def test_a_shell_comes_back_to_life_by_its_external_id(own: Daemon) -> None:
    patch(own, max_examples=1)
    first = post(own, "a", external_id="a")
    post(own, "b", external_id="b")
    assert counts(own)["expired"] == 1
    assert post(own, "a again", external_id="a") == first
    shown = own.http.get(own.path("/examples")).json()["examples"]
    assert [(row["status"], row["input"]) for row in shown] == [
        ("pending", "a again"),
        ("expired", None),
    ]


def test_a_run_goes_on_when_its_examples_expire(own: Daemon) -> None:
    own.post_examples()
    own.script(steps=60, step_seconds=0.05)
    run_id = own.train()
    own.wait_for(run_id, lambda run: run["step"] >= 1)
    patch(own, max_examples=45)
    ended = own.wait_until_ended(run_id)
    assert ended["status"] == "completed"
    seen = own.http.get(own.path("/versions/1")).json()["seen_deleted"]
    assert seen == 5
    assert counts(own)["expired"] == 5
    assert (counts(own)["used"], counts(own)["pending"]) == (5, 0)
