"""How the app's part reacts to what a daemon may answer."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.demo import player
from service.demo.player import Player, PlayError, RunError
from service.demo.rows import Row

ROWS = [Row(f"text {n}", "ab"[n % 2], "holdout" if n % 4 == 0 else "train") for n in range(120)]


def run(status: str, **fields: Any) -> dict[str, Any]:
    empty = {"phase": None, "step": None, "evaluated": None, "error": None, "version": None}
    return {"id": 7, "status": status, **empty, **fields}


def app(answer: Callable[[httpx.Request], httpx.Response]) -> Player:
    return Player("http://127.0.0.1:1", "secret", httpx.MockTransport(answer))


def playing(script: list[dict[str, Any]], posts: list[str]) -> Player:
    """A daemon whose run goes through these states, one a look."""
    states = iter(script)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            posts.append(request.url.path)
            return httpx.Response(202, json=run("queued"))
        return httpx.Response(200, json=next(states))

    return app(answer)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "POLL_SECONDS", 0)


def test_examples_go_out_in_order_in_batches_with_their_split_and_the_token() -> None:
    sent: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer secret"
        batch = json.loads(request.content)["examples"]
        first = len(sent)
        sent.extend(batch)
        made = [
            {"id": 100 + first + n, "split": "train", "cut_tokens": 1} for n in range(len(batch))
        ]
        return httpx.Response(201, json={"examples": made})

    counts: list[int] = []
    ids, cut = app(answer).post_examples(ROWS, counts.append)
    assert [(e["input"], e["label"], e["split"]) for e in sent] == [
        (r.input, r.label, r.split) for r in ROWS
    ]
    assert ids == list(range(100, 220))
    assert cut == 120
    assert counts == [50, 100, 120]


def test_a_refusal_says_status_reason_and_fields() -> None:
    problem = {
        "detail": "1 field can't be used",
        "errors": [{"field": "body.labels", "message": "at most 64"}],
    }
    refusing = app(lambda request: httpx.Response(422, json=problem))
    with pytest.raises(PlayError, match=r"422, 1 field can't be used\n  body\.labels: at most 64"):
        refusing.create_adapter("m", ["a", "b"], {})


def test_an_error_that_is_no_problem_document_is_still_told() -> None:
    with pytest.raises(PlayError, match="502"):
        app(lambda request: httpx.Response(502, text="oh")).create_adapter("m", ["a", "b"], {})


def test_a_daemon_that_is_gone_is_a_clear_error() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    with pytest.raises(PlayError, match="no answer from the daemon"):
        app(answer).create_adapter("m", ["a", "b"], {})


def test_a_run_is_watched_to_its_end() -> None:
    seen: list[str] = []
    script = [run("running", phase="training", step=1), run("completed", version=1)]
    done = playing(script, []).train(lambda state: seen.append(state["status"]))
    assert done["version"] == 1
    assert seen == ["running", "completed"]


def test_an_interrupted_run_goes_on_by_itself() -> None:
    posts: list[str] = []
    script = [run("interrupted", step=10), run("running", step=11), run("completed", version=1)]
    assert playing(script, posts).train(lambda state: None)["version"] == 1
    assert len(posts) == 1


def test_a_run_interrupted_again_and_again_fails() -> None:
    posts: list[str] = []
    script = [
        run(status, step=step, error="killed")
        for step in range(10)
        for status in ("running", "interrupted", "interrupted")
    ]
    with pytest.raises(RunError, match="4 times: killed") as caught:
        playing(script, posts).train(lambda state: None)
    assert caught.value.run_id == 7
    assert len(posts) == 1


def test_a_failed_run_says_why() -> None:
    with pytest.raises(RunError, match="run 7 failed: loss is not finite"):
        playing([run("failed", error="loss is not finite")], []).train(lambda state: None)


def test_a_run_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "STALL_SECONDS", -1)
    script = [run("running", phase="training", step=3)] * 2
    script.append({"not_training_because": "the battery is empty"})
    with pytest.raises(RunError, match=r"stands still.*the battery is empty"):
        playing(script, []).train(lambda state: None)


def test_predictions_come_back_in_the_order_of_the_rows() -> None:
    ids = [500 - n for n in range(len(ROWS))]
    measured = [
        {
            "example_id": i,
            "label": row.label,
            "before": {"predicted": "a"},
            "after": {"predicted": row.label},
        }
        for i, row in sorted(zip(ids, ROWS, strict=True), key=lambda pair: pair[0])
        if row.split == "holdout"
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/download"):
            assert dict(request.url.params) == {"format": "peft"}
            return httpx.Response(200, content=b"PK")
        return httpx.Response(200, json={"number": 3, "holdout_rows": measured})

    outcome = app(answer).collect(run("completed", version=3), ROWS, ids, 0)
    assert outcome.adapter_predictions == [row.label for row in ROWS if row.split == "holdout"]
    assert set(outcome.base_predictions) == {"a"}
    assert outcome.archive == b"PK"
