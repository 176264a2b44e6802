"""Questions that the real worker answers between its steps: the same answers, the same training."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.trainer.predictor_child import (
    PredictorChild,
    add_version,
    label_question,
    text_question,
)
from tests.trainer.workers import (
    Worker,
    adapter_bytes,
    manifest_of,
    run_to_the_end,
    step_numbers,
    write_spec,
)


def ask(worker: Worker, number: int, question: dict[str, Any]) -> None:
    worker.write(f"predict {json.dumps({'id': number, **question})}\n".encode())


def test_neither_answers_nor_training_change(home: Path) -> None:
    version = add_version(home, 77)
    write_spec(home, 1)
    alone = run_to_the_end(home, 1)

    drawn = {"temperature": 1.0, "top_p": 0.9, "seed": 4}
    questions = {
        1: label_question(home, version, "mum is at the door", "sale"),
        2: text_question(home, version, "go on", stream=True, **drawn),
        3: label_question(home, None, "mum is at the door"),
        4: text_question(home, None, "go on", **drawn),
        5: label_question(home, version, "x" * 400),
        6: label_question(home, None, "another base") | {"base_hash": "sha256:0"},
        7: label_question(home, version, "mum is at the door", "sale"),
    }
    child = PredictorChild(home)
    expected = {
        number: child.until_over(child.send(question)) for number, question in questions.items()
    }
    assert child.end() == (0, [])
    expected[6][0] |= {"status": 503}

    write_spec(home, 2)
    worker = Worker(home, 2)
    seen = worker.until("phase", phase="evaluating_before")
    ask(worker, 1, questions[1])
    seen += worker.until("answer", id=1)
    seen += worker.until("step", step=2)
    for number in (2, 3, 4):
        ask(worker, number, questions[number])
    seen += worker.until("answer", id=4)
    seen += worker.until("step")
    for number in (5, 6, 7):
        ask(worker, number, questions[number])
    code, rest = worker.wait()
    assert code == 0, worker.log_text()
    seen += rest

    for number, events in expected.items():
        found = [e for e in seen if e.get("id") == number and e["event"] != "answering"]
        for event in (*found, *events):
            event.pop("run", None)
        if number == 6:
            assert "is in training" in found[0].pop("error")
            events[0].pop("error")
        assert found == events
    assert step_numbers(seen) == step_numbers(alone)
    assert adapter_bytes(home, 2) == adapter_bytes(home, 1)
    ours, theirs = manifest_of(home, seen[-1]), manifest_of(home, alone[-1])
    for what in ("metrics", "holdout_rows", "exact_resume"):
        assert ours[what] == theirs[what]


def test_the_wish_to_stop_ends_a_text_too(home: Path) -> None:
    write_spec(home, 1, steps=400, checkpoint_every_steps=100)
    worker = Worker(home, 1)
    worker.until("step", step=1)
    long = text_question(home, None, "on", max_tokens=2000, temperature=1.0, stream=True)
    ask(worker, 1, long)
    ask(worker, 2, label_question(home, None, "later"))
    worker.until("token")
    worker.process.send_signal(signal.SIGTERM)
    code, rest = worker.wait()
    assert code == 75, worker.log_text()
    refused = {event["id"]: event["status"] for event in rest if event["event"] == "refused"}
    assert refused == {1: 503, 2: 503}
    assert rest[-1]["event"] in ("stopped", "refused")


def test_a_rest_is_broken_off_for_a_question(home: Path) -> None:
    write_spec(home, 1, steps=400)
    worker = Worker(home, 1)
    worker.until("step", step=1)
    worker.write(b"duty 0.000001\n")  # it may come before the second step or after it
    for number in (1, 2):
        ask(worker, number, label_question(home, None, "now"))
        worker.until("answer", id=number)
    long = text_question(home, None, "on", max_tokens=2000, temperature=1.0, stream=True)
    ask(worker, 3, long)
    worker.until("token")
    worker.write(b'predict {"cancel": 3}\n')
    worker.until("cancelled", id=3)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait()[0] == 75
