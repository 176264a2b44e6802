"""The real predictor and worker over HTTP: their answers are the numbers of the holdout."""

import math
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import DefaultHttpxClient, OpenAI

from tests.service.daemon import Daemon, add_tiny_model, is_alive, until

CANARY = "canary-5d13"
TRAINING = {"steps": 40, "learning_rate": 0.01, "seed": 3}
LABELS = ["now", "later", "never"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("real-predictions")
    home = folder / "home"
    add_tiny_model(home)
    serve = {"LORAD_PREDICT_WHILE_TRAINING": "serve"}
    programs = {"worker": "trainer.worker", "predictor": "trainer.predictor"}
    with Daemon(home, environment=serve, **programs) as daemon:
        daemon.create_adapter("phone", labels=LABELS, training=TRAINING)
        daemon.create_adapter("free", labels=None)
        examples = [
            {"input": f"{CANARY} {number} {label}", "label": label, "split": split}
            for split, numbers in (("train", range(12)), ("holdout", range(100, 104)))
            for number in numbers
            for label in LABELS
        ]
        posted = daemon.http.post("/v1/adapters/phone/examples", json={"examples": examples})
        assert posted.status_code == 201
        yield daemon


def predict(daemon: Daemon, *inputs: str, adapter: str = "phone", **options: Any) -> dict[str, Any]:
    body = {"inputs": inputs, **options}
    response = daemon.http.post(f"/v1/adapters/{adapter}/predict", json=body, timeout=120)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def shares(prediction: dict[str, Any]) -> dict[str, float]:
    return {one["label"]: one["probability"] for one in prediction["labels"]}


@pytest.mark.slow
def test_the_answers_are_the_numbers_of_the_holdout(real: Daemon) -> None:
    bare = predict(real, f"{CANARY} 100 now")
    assert (bare["version"], bare["engine"]) == (None, "torch_cpu")
    child = real.worker_pid()
    run = real.wait_until_ended(real.train("phone"), seconds=240)
    assert (run["status"], run["error"]) == ("completed", None), run
    assert not is_alive(child)
    version = real.http.get("/v1/adapters/phone/versions/1").json()
    with sqlite3.connect(f"file:{real.home / 'lorad.db'}?mode=ro", uri=True) as database:
        texts = dict(database.execute("SELECT id, input FROM examples"))
    rows = version["holdout_rows"]
    assert len(rows) == 12
    answer = predict(real, *(texts[row["example_id"]] for row in rows), version=1)
    assert answer["version"] == 1
    for row, one in zip(rows, answer["predictions"], strict=True):
        assert one["label"] == row["after"]["predicted"]
        assert sum(shares(one).values()) == pytest.approx(1)
        nll = -math.log(shares(one)[row["label"]])
        assert nll == pytest.approx(row["after"]["label_nll"], rel=1e-4, abs=1e-5)
    alone = predict(real, texts[rows[0]["example_id"]], version=1)
    assert alone["predictions"][0] == answer["predictions"][0]
    changed = predict(real, texts[rows[0]["example_id"]], version=1, prior=True)
    assert shares(changed["predictions"][0]) != shares(alone["predictions"][0])


@pytest.mark.slow
def test_text_whole_and_streamed_by_the_real_client_is_the_same(real: Daemon) -> None:
    client = OpenAI(
        base_url=f"http://127.0.0.1:{real.port}/v1",
        api_key=real.token,
        http_client=DefaultHttpxClient(trust_env=False),
    )
    asked: dict[str, Any] = {
        "model": "phone",
        "messages": [{"role": "user", "content": f"{CANARY} says 🦔"}],
        "max_tokens": 24,
        "temperature": 0.8,
        "seed": 11,
    }
    with client:
        whole = client.chat.completions.create(**asked)
        stream = client.chat.completions.create(**asked, stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
        assert "".join(pieces) == whole.choices[0].message.content
        assert whole.usage is not None
        assert 0 < whole.usage.completion_tokens <= 24
        cold = asked | {"temperature": 0.0, "seed": 1}
        greedy = client.chat.completions.create(**cold).choices[0].message.content
        again = client.chat.completions.create(**(cold | {"seed": 2})).choices[0].message.content
        assert greedy == again
    [text] = predict(real, CANARY, adapter="free", max_tokens=4)["predictions"]
    assert text["usage"]["completion_tokens"] <= 4


@pytest.mark.slow
def test_the_worker_answers_as_the_child_does(real: Daemon) -> None:
    before = predict(real, f"{CANARY} later", "never", version=1)
    run = real.train("phone", training=TRAINING | {"steps": 200})
    real.wait_for(run, lambda now: now["step"] >= 1, seconds=120)
    worker = real.worker_pid()
    with ThreadPoolExecutor(3) as threads:
        asked = [
            threads.submit(predict, real, f"{CANARY} later", "never", version=1) for _ in range(3)
        ]
        answers = [one.result() for one in asked]
    assert real.worker_pid() == worker
    for answer in answers:
        for one, other in zip(answer["predictions"], before["predictions"], strict=True):
            assert shares(one) == pytest.approx(shares(other), rel=1e-5)
    ended = real.wait_until_ended(run, seconds=240)
    assert (ended["status"], ended["error"]) == ("completed", None)


@pytest.mark.slow
def test_no_log_holds_a_text_and_nothing_is_left_running(real: Daemon) -> None:
    predict(real, CANARY)
    child = real.worker_pid()
    logs = [real.log_path, *real.home.glob("runs/*/worker.log"), real.home / "predictor.log"]
    assert len(logs) == 4
    for log in logs:
        assert CANARY not in log.read_text(), log
    real.kill()
    until(lambda: not is_alive(child), 10)
