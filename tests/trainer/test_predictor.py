"""The process that answers: a real child, real pipes, real signals."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.predictor_child import (
    LABELS,
    PredictorChild,
    add_version,
    label_question,
    text_question,
)

SECRET = "canary-9917"
WINDOW = 60
"""Seconds within which a busy machine ends a process that has nothing left to do."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tiny_home: Path) -> Path:
    home = tmp_path_factory.mktemp("predictor")
    shutil.copytree(tiny_home / "models", home / "models")
    for number in (1, 2):
        add_version(home, number)
    return home


@pytest.fixture(scope="module")
def child(home: Path) -> Iterator[PredictorChild]:
    child = PredictorChild(home)
    assert next(iter(child)) == {"event": "ready"}
    yield child
    code, rest = child.end()
    assert (code, rest) == (0, []), child.log_text()
    assert SECRET not in child.log_text()


def version(number: int) -> str:
    return f"adapters/1/versions/run-{number:08d}"


def test_labels_have_probabilities(child: PredictorChild, home: Path) -> None:
    answer = child.ask(label_question(home, version(1), f"{SECRET} call mum", "sale"))
    assert (answer["event"], answer["engine"]) == ("answer", "torch_cpu")
    for found in answer["predictions"]:
        assert list(found["probabilities"]) == LABELS
        assert sum(found["probabilities"].values()) == pytest.approx(1)
        assert found["label"] == max(LABELS, key=found["probabilities"].__getitem__)
        assert found["cut_tokens"] == 0


def test_an_input_is_answered_as_if_alone_bit_for_bit(child: PredictorChild, home: Path) -> None:
    inputs = ["a", "parcel at the door", "x" * 90, "", "later, mum " * 6]
    together = child.ask(label_question(home, version(1), *inputs))["predictions"]
    again = child.ask(label_question(home, version(1), *reversed(inputs)))["predictions"]
    alone = [child.ask(label_question(home, version(1), text))["predictions"][0] for text in inputs]
    assert together == alone == again[::-1]


def test_two_adapters_in_turn_answer_as_if_alone(
    child: PredictorChild, home: Path, tmp_path: Path
) -> None:
    """The same prompt, so that anything kept of it by one would be wrong for the other."""
    labels = [label_question(home, one, "the same") for one in (version(1), version(2), None)]
    texts = [text_question(home, one, "the same") for one in (version(1), version(2), None)]
    first = [child.ask(one) for one in (*labels, *texts)]
    for answer in first:
        answer.pop("id")
    assert len({json.dumps(answer) for answer in first}) == 6
    again = [child.ask(one) for one in (*reversed(texts), *reversed(labels))]
    for answer in again:
        answer.pop("id")
    assert again[::-1] == first
    shutil.copytree(home, tmp_path / "home")
    for question, expected in ((labels[0], first[0]), (texts[1], first[4])):
        fresh = PredictorChild(tmp_path / "home")
        assert fresh.ask(question) == {"id": 1, **expected}
        assert fresh.end() == (0, [])


def test_a_text_is_streamed_in_pieces_that_are_the_text(child: PredictorChild, home: Path) -> None:
    question = text_question(home, version(2), "go on", max_tokens=40, temperature=1.0, seed=5)
    whole = child.ask(question)
    *pieces, answer = child.until_over(child.send({**question, "stream": True}))
    assert {event["event"] for event in pieces} == {"token"}
    assert "".join(event["text"] for event in pieces) == answer["text"] == whole["text"]
    assert len(pieces) > 5
    assert answer["usage"]["completion_tokens"] == 40
    assert answer["finish_reason"] == "length"


def test_a_question_that_is_taken_back_ends(child: PredictorChild, home: Path) -> None:
    long = text_question(home, None, "on and on", max_tokens=1900, stream=True, seed=3)
    running = child.send({**long, "temperature": 1.0})
    waiting = child.send(label_question(home, None, "never"))
    after = child.send(label_question(home, None, "now"))
    for event in child:
        if event["event"] == "token":
            break
    child.write(b'{"cancel": %d}\n{"cancel": %d}\n{"cancel": 999}\n' % (waiting, running))
    assert child.until_over(running)[-1] == {"event": "cancelled", "id": running}
    assert child.until_over(waiting) == [{"event": "cancelled", "id": waiting}]
    assert child.until_over(after)[-1]["event"] == "answer"


@pytest.mark.parametrize(
    ("changes", "status", "field", "said"),
    [
        ({"op": "sing"}, 422, "op", "labels or text"),
        ({"labels": ["now", "now"]}, 422, "labels", "each once"),
        ({"inputs": ["fine", "x" * 300]}, 422, "inputs.1", "at most 256 tokens"),
        ({"base_hash": "sha256:other"}, 409, None, "expected base model tiny with sha256:other"),
        ({"model": "gone"}, 409, None, "add the model again"),
        ({"version": "adapters/1/versions/run-00000077"}, 409, None, "found none"),
        ({"engine": {"engine": "gpu"}}, 422, "engine.engine", "torch_cpu"),
        ({"inputs": ["\ud800"]}, 422, "inputs.0", "chat template"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    child: PredictorChild,
    home: Path,
    changes: dict[str, object],
    status: int,
    field: str | None,
    said: str,
) -> None:
    question = label_question(home, version(1), f"{SECRET} mum") | changes
    found = child.ask(question)
    assert (found["event"], found["status"], found["field"]) == ("refused", status, field)
    assert said in found["error"]
    assert SECRET not in found["error"]


def test_a_text_beyond_the_context_is_refused_with_the_counts(
    child: PredictorChild, home: Path
) -> None:
    found = child.ask(text_question(home, None, "a" * 1000, max_tokens=1100))
    assert (found["status"], found["field"]) == (422, "max_tokens")
    assert "at most 2048 tokens" in found["error"]
    assert "found 1019 and max_tokens 1100" in found["error"]
    found = child.ask(text_question(home, None, "a" * 4000, max_tokens=1))
    assert (found["status"], found["field"]) == (422, "messages")
    found = child.ask(text_question(home, None, "a", role="x") | {"messages": [{"role": "x"}]})
    assert (found["status"], found["field"]) == (422, "messages.0")


def test_an_input_is_cut_as_for_training(child: PredictorChild, home: Path) -> None:
    changes = {"too_long": "cut", "max_tokens": 64}
    long, short = child.ask(label_question(home, version(1), "x" * 300, "x", **changes))[
        "predictions"
    ]
    assert short["cut_tokens"] == 0
    kept = 300 - long["cut_tokens"]
    expected = child.ask(label_question(home, version(1), "x" * kept))["predictions"][0]
    assert long["probabilities"] == expected["probabilities"]


def test_lines_that_are_no_questions_do_nothing(child: PredictorChild, home: Path) -> None:
    child.write(f'{SECRET}\n\n[]\n{{"op": "labels"}}\n{{"cancel": "x"}}\n\xff\n'.encode("latin-1"))
    assert child.ask(label_question(home, None, "still here"))["event"] == "answer"


def test_a_version_that_was_deleted_is_not_asked_from_memory(
    child: PredictorChild, home: Path
) -> None:
    path = add_version(home, 3)
    assert child.ask(label_question(home, path, "a"))["event"] == "answer"
    shutil.rmtree(home / path)
    assert child.ask(label_question(home, path, "a"))["status"] == 409


def test_only_one_holds_torch(child: PredictorChild, home: Path) -> None:
    code, events = PredictorChild(home).wait()
    assert code == 3
    assert [event["event"] for event in events] == ["failed"]
    assert "(trainer.predictor) holds worker.lock" in events[0]["error"]


def test_the_end_comes_soon_and_in_order(tmp_path: Path, tiny_home: Path) -> None:
    """By SIGTERM, by a daemon that dies amid a text, and at the end of the questions."""
    shutil.copytree(tiny_home / "models", tmp_path / "models")
    long = text_question(tmp_path, None, "on", max_tokens=2000, temperature=1.0, stream=True)

    child = PredictorChild(tmp_path)
    running, waiting = child.send(long), child.send(long)
    next(event for event in child if event["event"] == "token")
    child.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    code, events = child.wait()
    assert time.monotonic() - began < WINDOW
    assert code == 0, child.log_text()
    refused = {event["id"]: event["status"] for event in events if event["event"] == "refused"}
    assert refused == {running: 503, waiting: 503}

    child = PredictorChild(tmp_path)
    child.send(label_question(tmp_path, None, "a"))
    for _ in range(40):  # which would take minutes
        child.send({**long, "stream": False})
    next(event for event in child if event["event"] == "answer")
    assert child.process.stdin is not None
    assert child.process.stdout is not None
    child.process.stdin.close()
    child.process.stdout.close()
    assert child.process.wait(WINDOW) == 0, child.log_text()

    child = PredictorChild(tmp_path)
    numbers = [child.send(label_question(tmp_path, None, "a")) for _ in range(3)]
    code, events = child.end()
    assert code == 0
    assert [event.get("id") for event in events] == [None, *numbers]


def test_one_started_without_the_way_to_the_npus_libraries_gives_way_to_the_next(
    tmp_path: Path, tiny_home: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'trainer.predictor' in sys.orig_argv:\n"
        "    from npu import engine_guard\n"
        "    def choose(*_):\n"
        "        raise engine_guard.AnotherLibraryPath\n"
        "    engine_guard.EngineGuard.choose = choose\n"
    )
    home = tmp_path / "home"
    shutil.copytree(tiny_home / "models", home / "models")
    child = PredictorChild(home, PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[2]}")
    assert next(iter(child)) == {"event": "ready"}
    refused = child.ask(label_question(home, None, "call mum"))
    assert (refused["event"], refused["status"]) == ("refused", 503)
    assert refused["error"].endswith("the next process is started with it; ask again")
    assert child.process.wait(WINDOW) == 0, "nobody told it to end"
