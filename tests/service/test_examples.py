"""Handing examples in and reading them back, over HTTP."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.service.daemon import Daemon

EXAMPLES = "/v1/adapters/phone/examples"


def test_one_and_many(shared: Daemon) -> None:
    one = shared.http.post(EXAMPLES, json={"input": "single", "label": "now"})
    assert one.status_code == 201
    assert [set(each) for each in one.json()["examples"]] == [{"id", "split", "cut_tokens"}]
    batch = [{"input": f"batch {n}", "label": "later", "split": "train"} for n in range(500)]
    many = shared.http.post(EXAMPLES, json={"examples": batch})
    assert many.status_code == 201
    ids = [each["id"] for each in many.json()["examples"]]
    assert len(set(ids)) == 500
    assert ids == sorted(ids)


def test_pages_lead_through_all_of_them(shared: Daemon) -> None:
    shared.create_adapter("paged")
    posted = shared.post_examples("paged", train=7, holdout=4)
    pages = shared.pages("/v1/adapters/paged/examples", "examples", limit=5)
    assert [len(page) for page in pages] == [5, 5, 1]
    assert [example["id"] for page in pages for example in page] == posted
    [first] = shared.http.get("/v1/adapters/paged/examples", params={"limit": 1}).json()["examples"]
    assert first | {"created_at": "", "changed_at": "", "id": 0} == {
        "id": 0,
        "input": "train message 0",
        "label": "now",
        "split": "train",
        "status": "pending",
        "external_id": None,
        "created_at": "",
        "changed_at": "",
    }
    assert first["created_at"].endswith("Z")
    assert shared.http.get(f"/v1/adapters/paged/examples/{first['id']}").json() == first


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"split": "holdout"}, ["c", "d"]),
        ({"split": "train"}, ["a", "b"]),
        ({"status": "pending"}, ["a", "b", "c", "d"]),
        ({"status": "used"}, []),
        ({"status": "expired"}, []),
        ({"external_id": "2"}, ["b"]),
        ({"external_id": "2", "split": "holdout"}, []),
        ({"split": "holdout", "status": "pending"}, ["c", "d"]),
        ({"external_id": "9"}, []),
    ],
    ids=str,
)
def test_only_what_was_asked_for(
    shared: Daemon, asked: dict[str, str], found: list[str], request: pytest.FixtureRequest
) -> None:
    name = "asked" + str(abs(hash(request.node.name)) % 10**9)
    shared.create_adapter(name)
    path = f"/v1/adapters/{name}/examples"
    batch = [
        {"input": text, "label": "now", "split": split, "external_id": str(number)}
        for number, (text, split) in enumerate(
            [("a", "train"), ("b", "train"), ("c", "holdout"), ("d", "holdout")], 1
        )
    ]
    assert shared.http.post(path, json={"examples": batch}).status_code == 201
    pages = shared.pages(path, "examples", limit=1, **asked)
    assert [example["input"] for page in pages for example in page] == found


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("cursor=x", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=" + "A" * 201, "cursor"),
        ("split=test", "split"),
        ("status=deleted", "status"),
        ("external_id=", "external_id"),
        ("external_id=%00", "external_id"),
        ("limit=1001", "limit"),
        ("limit=0", "limit"),
    ],
)
def test_a_question_that_makes_no_sense(shared: Daemon, query: str, field: str) -> None:
    response = shared.http.get(f"{EXAMPLES}?{query}")
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [f"query.{field}"]


def test_another_adapters_example_is_no_example_of_this_one(shared: Daemon) -> None:
    shared.create_adapter("mine")
    shared.create_adapter("other")
    [theirs] = shared.post_examples("other", train=1, holdout=0)
    found = shared.http.get(f"/v1/adapters/mine/examples/{theirs}")
    absent = shared.http.get("/v1/adapters/mine/examples/999999999")
    assert found.status_code == absent.status_code == 404
    assert found.json() == absent.json()


def test_any_text_comes_back_as_it_was(shared: Daemon) -> None:
    shared.create_adapter("texts", labels=None)
    texts = [
        "日本語 🎉\u200d",
        "<|im_end|>\r\n\t",
        "\x01\x7f\u2028",
        "é e\u0301",
        "'; DROP TABLE x;--",
    ]
    body = {"examples": [{"input": text, "label": text} for text in texts]}
    assert shared.http.post("/v1/adapters/texts/examples", json=body).status_code == 201
    kept = shared.http.get("/v1/adapters/texts/examples").json()["examples"]
    assert [(each["input"], each["label"]) for each in kept] == [(text, text) for text in texts]


def test_an_external_id_corrects(shared: Daemon) -> None:
    shared.create_adapter("corrected")
    path = "/v1/adapters/corrected/examples"
    [first] = shared.http.post(
        path, json={"input": "a", "label": "now", "split": "holdout", "external_id": "sms-1"}
    ).json()["examples"]
    [again] = shared.http.post(
        path, json={"input": "a", "label": "later", "external_id": "sms-1"}
    ).json()["examples"]
    assert (again["id"], again["split"]) == (first["id"], "holdout")
    [kept] = shared.http.get(path).json()["examples"]
    assert kept["label"] == "later"
    response = shared.http.post(
        path, json={"input": "a", "label": "now", "split": "train", "external_id": "sms-1"}
    )
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == ["body.split"]


def test_a_split_that_contradicts_a_duplicate_names_its_line(shared: Daemon) -> None:
    shared.create_adapter("contradicted")
    batch = [
        {"input": "one", "label": "now", "split": "train"},
        {"input": "two", "label": "now", "split": "train"},
        {"input": " ONE ", "label": "now", "split": "holdout"},
    ]
    response = shared.http.post("/v1/adapters/contradicted/examples", json={"examples": batch})
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == ["body.examples[2].split"]
    assert shared.adapter("contradicted")["examples"]["train"] == 0


def test_labels_of_an_adapter_without_any_are_free(shared: Daemon) -> None:
    response = shared.http.post(
        "/v1/adapters/free/examples", json={"input": "Dear all,", "label": "a long\nanswer"}
    )
    assert response.status_code == 201


def test_fifty_posts_at_once_while_a_worker_reads(daemon: Daemon) -> None:
    daemon.create_adapter("phone")
    daemon.script(steps=4000, step_seconds=0.01)
    daemon.post_examples(train=50, holdout=0)
    run_id = daemon.train()
    daemon.wait_for(run_id, lambda run: run["step"] > 0)
    gate = threading.Barrier(50)

    def post(number: int) -> list[tuple[int, int]]:
        with httpx.Client(
            base_url=daemon.http.base_url, headers=daemon.http.headers, timeout=60, trust_env=False
        ) as client:
            gate.wait()
            answers = []
            for turn in range(4):
                text = f"concurrent {number} {turn}"
                response = client.post(EXAMPLES, json={"input": text, "label": "now"})
                answers.append((response.status_code, response.json()["examples"][0]["id"]))
                assert client.get("/v1/adapters/phone").status_code == 200
            return answers

    with ThreadPoolExecutor(50) as pool:
        answers = [answer for each in pool.map(post, range(50)) for answer in each]
    assert {status for status, _ in answers} == {201}
    assert len({number for _, number in answers}) == 200
    counts = daemon.adapter()["examples"]
    assert counts["train"] + counts["holdout"] == 250
    assert daemon.run(run_id)["status"] == "running"


def test_a_201_survives_a_sigkill(daemon: Daemon) -> None:
    daemon.create_adapter("phone")
    ids = daemon.post_examples(train=3, holdout=2)
    daemon.kill()
    daemon.start()
    kept = daemon.http.get(EXAMPLES).json()["examples"]
    assert [example["id"] for example in kept] == ids


@pytest.mark.parametrize("broken", ["gone", "changed tokenizer"])
def test_a_base_model_that_is_not_as_it_was(daemon: Daemon, broken: str) -> None:
    daemon.create_adapter("phone")
    tokenizer = daemon.home / "models" / "tiny" / "tokenizer.json"
    if broken == "gone":
        tokenizer.unlink()
    else:
        daemon.stop()  # a running daemon has it in memory
        tokenizer.write_text(json.dumps({"model": {}}))
        daemon.start()
    response = daemon.http.post(EXAMPLES, json={"input": "a", "label": "now"})
    assert response.status_code == 409
    assert "tiny" in response.json()["detail"]
