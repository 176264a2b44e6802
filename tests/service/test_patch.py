"""Changing an adapter's settings: ETags, what may change, and what the examples forbid."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.service.daemon import CONTEXT, TEMPLATE_TOKENS, Daemon, until

MARGIN = 8


def patch(
    daemon: Daemon, name: str, if_match: str | None = "*", /, **change: Any
) -> httpx.Response:
    headers = {} if if_match is None else {"If-Match": if_match}
    return daemon.http.patch(f"/v1/adapters/{name}", json=change, headers=headers)


def etag(daemon: Daemon, name: str) -> str:
    tag: str = daemon.http.get(f"/v1/adapters/{name}").headers["etag"]
    return tag


def post(daemon: Daemon, name: str, *labels: str) -> None:
    batch = [{"input": f"{label} {n}", "label": label} for n, label in enumerate(labels)]
    response = daemon.http.post(f"/v1/adapters/{name}/examples", json={"examples": batch})
    assert response.status_code == 201, response.text


def fields(response: httpx.Response) -> list[str]:
    assert response.headers["content-type"] == "application/problem+json"
    return [error["field"] for error in response.json().get("errors", [])]


@pytest.mark.parametrize(
    ("change", "after"),
    [
        ({"labels": ["now", "later", "never"]}, {}),
        ({"labels": ["later", "now"]}, {}),
        ({"labels": None}, {}),
        ({"max_tokens": 100}, {}),
        ({"max_tokens": CONTEXT}, {}),
        ({"too_long": "cut"}, {}),
        ({"training": {"seed": 7}}, {"training": {"seed": 7, "learning_rate": 0.001}}),
        (
            {"training": {"learning_rate": None}},
            {"training": {"seed": 3, "learning_rate": None}},
        ),
        ({"retention": {"keep_days": 5}}, {"retention": {"keep_days": 5, "max_examples": 100}}),
        (
            {"retention": {"max_examples": None}},
            {"retention": {"keep_days": 90, "max_examples": None}},
        ),
        ({"too_long": "cut", "max_tokens": 64, "labels": None}, {}),
    ],
    ids=str,
)
def test_only_what_is_given_changes(
    shared: Daemon, change: dict[str, Any], after: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = f"patched{abs(hash(request.node.name)) % 10**9}"
    before = shared.create_adapter(
        name,
        training={"seed": 3, "learning_rate": 0.001},
        retention={"keep_days": 90, "max_examples": 100},
        max_tokens=200,
    )
    response = patch(shared, name, '"1"', **change)
    assert response.status_code == 200, response.text
    expected = before | {"revision": 2}
    for field, value in (change | after).items():
        expected[field] = before[field] | value if isinstance(value, dict) else value
    assert response.json() == expected
    assert shared.adapter(name) == expected
    assert response.headers["etag"] == etag(shared, name) == '"2"'


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"max_tokens": 512},
        {"labels": ["now", "later"], "too_long": "refuse"},
        {"training": {}},
        {"training": {"seed": 0}, "retention": {"keep_days": None}},
        {"retention": {}},
    ],
    ids=str,
)
def test_what_changes_nothing_makes_no_revision(
    shared: Daemon, change: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = f"same{abs(hash(request.node.name)) % 10**9}"
    before = shared.create_adapter(name)
    response = patch(shared, name, **change)
    assert (response.status_code, response.json()) == (200, before)
    assert response.headers["etag"] == '"1"'


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rank": 8}, "rank"),
        ({"alpha": 16.0}, "alpha"),
        ({"targets": ["q_proj"]}, "targets"),
        ({"use_rslora": False}, "use_rslora"),
        ({"top_layers": None}, "top_layers"),
        ({"method": "first_order"}, "method"),
        ({"base_model": "tiny"}, "base_model"),
        ({"name": "other"}, "name"),
        ({"rank": None}, "rank"),
        ({"revision": 4}, "revision"),
        ({"colour": "red"}, "colour"),
        ({"labels": []}, "labels"),
        ({"labels": ["now", "now"]}, "labels"),
        ({"labels": ["now", " later"]}, "labels[1]"),
        ({"labels": ["now", "l" * 200], "max_tokens": 128}, "labels[1]"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 15}, "max_tokens"),
        ({"max_tokens": CONTEXT + 1}, "max_tokens"),
        ({"max_tokens": TEMPLATE_TOKENS + MARGIN + len("now")}, "labels[0]"),
        ({"too_long": None}, "too_long"),
        ({"too_long": "split"}, "too_long"),
        ({"training": None}, "training"),
        ({"training": {"steps": 0}}, "training.steps"),
        ({"training": {"batch_size": None}}, "training.batch_size"),
        ({"retention": None}, "retention"),
        ({"retention": {"keep_days": 0}}, "retention.keep_days"),
        ({"retention": {"max_examples": True}}, "retention.max_examples"),
    ],
    ids=str,
)
def test_what_can_not_change_is_named(shared: Daemon, change: dict[str, Any], field: str) -> None:
    before = shared.adapter("phone")
    response = patch(shared, "phone", **({"too_long": "cut"} | change))
    assert response.status_code == 422, response.text
    assert fields(response) == [f"body.{field}"]
    assert shared.adapter("phone") == before


def test_without_if_match_or_with_an_old_one_nothing_changes(shared: Daemon) -> None:
    shared.create_adapter("tagged")
    assert patch(shared, "tagged", None, max_tokens=100).status_code == 428
    assert patch(shared, "tagged", '"1"', max_tokens=100).status_code == 200
    for stale in ('"1"', 'W/"2"', "2", '"3", "4"', "", '"*"', "nonsense"):
        response = patch(shared, "tagged", stale, max_tokens=101)
        assert response.status_code == 412, stale
        assert fields(response) == []
    assert shared.adapter("tagged")["max_tokens"] == 100
    for fresh in ('"1", "2"', "*"):
        assert patch(shared, "tagged", fresh, max_tokens=100).status_code == 200
    assert patch(shared, "absent", None).status_code == 404


def test_of_twenty_changes_with_one_etag_one_wins(daemon: Daemon) -> None:
    daemon.create_adapter("raced")
    gate = threading.Barrier(20)

    def change(number: int) -> int:
        with httpx.Client(
            base_url=daemon.http.base_url, headers=daemon.http.headers, timeout=60, trust_env=False
        ) as client:
            gate.wait()
            body = {"max_tokens": 100 + number}
            headers = {"If-Match": '"1"'}
            return client.patch("/v1/adapters/raced", json=body, headers=headers).status_code

    with ThreadPoolExecutor(20) as pool:
        assert sorted(pool.map(change, range(20))) == [200] + [412] * 19
    assert daemon.adapter("raced")["revision"] == 2


def test_a_change_sent_again_under_its_key_is_made_once(shared: Daemon) -> None:
    shared.create_adapter("retried")
    headers = {"If-Match": '"1"', "Idempotency-Key": "patch-1"}
    first = shared.http.patch("/v1/adapters/retried", json={"max_tokens": 99}, headers=headers)
    again = shared.http.patch("/v1/adapters/retried", json={"max_tokens": 99}, headers=headers)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == first.json()
    assert again.headers["idempotent-replay"] == "true"


def test_labels_that_examples_have_stay(shared: Daemon) -> None:
    shared.create_adapter("kept", labels=["a", "b", "c", "d"])
    post(shared, "kept", "a", "b", "b", "c")
    response = patch(shared, "kept", labels=["a", "d"])
    assert response.status_code == 409
    assert "3 examples" in response.json()["detail"]
    assert [error["message"] for error in response.json()["errors"]] == [
        "examples with the label 'b': 2",
        "examples with the label 'c': 1",
    ]
    assert shared.adapter("kept")["labels"] == ["a", "b", "c", "d"]
    assert patch(shared, "kept", labels=["c", "b", "a"]).status_code == 200


def test_free_labels_can_be_declared_once_all_examples_have_one_of_them(shared: Daemon) -> None:
    shared.create_adapter("declared", labels=None)
    others = [f"other {number:02}" for number in range(15)]
    post(shared, "declared", "now", "x" * 100, *others)
    response = patch(shared, "declared", labels=["now", "later"])
    assert response.status_code == 409
    assert "16 examples" in response.json()["detail"]
    assert len(response.json()["errors"]) == 10
    assert "x" * 61 not in response.text
    assert patch(shared, "declared", labels=["now", "x" * 100, *others]).status_code == 200
    response = shared.http.post(
        "/v1/adapters/declared/examples", json={"input": "a", "label": "later"}
    )
    assert response.status_code == 422


def test_a_free_label_keeps_its_room(shared: Daemon) -> None:
    shared.create_adapter("roomy", labels=None)
    post(shared, "roomy", "z" * 100, "z" * 10)
    least = TEMPLATE_TOKENS + MARGIN + 100
    response = patch(shared, "roomy", max_tokens=least)
    assert response.status_code == 409
    assert str(least) in response.json()["detail"]
    assert patch(shared, "roomy", max_tokens=least + 1).status_code == 200


def test_no_example_is_orphaned_by_a_change_of_labels_at_the_same_moment(daemon: Daemon) -> None:
    """An example is checked against the labels as they are when it is kept, not when it came."""
    seen = set()
    for turn in range(12):
        name = f"race-{turn}"
        daemon.create_adapter(name, labels=["now", "later", "never"])
        gate = threading.Barrier(7)

        def request(number: int, name: str, gate: threading.Barrier) -> int:
            with httpx.Client(
                base_url=daemon.http.base_url,
                headers=daemon.http.headers,
                timeout=60,
                trust_env=False,
            ) as client:
                gate.wait()
                path = f"/v1/adapters/{name}"
                if number == 0:
                    change = {"labels": ["now", "later"]}
                    return client.patch(path, json=change, headers={"If-Match": "*"}).status_code
                body = {"input": f"text {number}", "label": "never"}
                return client.post(f"{path}/examples", json=body).status_code

        with ThreadPoolExecutor(7) as pool:
            jobs = [pool.submit(request, number, name, gate) for number in range(7)]
            changed, *posted = (job.result() for job in jobs)
        kept = daemon.http.get(f"/v1/adapters/{name}/examples").json()["examples"]
        assert set(posted) <= {201, 422}
        assert len(kept) == posted.count(201)
        assert changed == (409 if kept else 200)
        seen.add(changed)
    assert seen <= {200, 409}
    assert "Traceback" not in daemon.log()


def test_a_lower_bound_holds_at_once(shared: Daemon) -> None:
    shared.create_adapter("lowered", labels=["now", "later"])
    post(shared, "lowered", *["now"] * 7)
    response = patch(shared, "lowered", retention={"max_examples": 2})
    counts = response.json()["examples"]
    assert (counts["train"] + counts["holdout"], counts["expired"]) == (2, 5)
    assert shared.adapter("lowered")["examples"] == counts
    # the labels of expired examples hold nothing any more
    assert patch(shared, "lowered", labels=["later", "now"]).status_code == 200


def test_many_examples_expire_after_the_answer(daemon: Daemon) -> None:
    daemon.create_adapter("phone")
    for start in range(0, 2500, 500):
        batch = [{"input": f"text {start + n}", "label": "now"} for n in range(500)]
        daemon.http.post("/v1/adapters/phone/examples", json={"examples": batch})
    counts = patch(daemon, "phone", retention={"max_examples": 10}).json()["examples"]
    assert counts["train"] + counts["holdout"] == 1500
    until(lambda: daemon.adapter()["examples"]["expired"] == 2490)
    kept = daemon.http.get("/v1/adapters/phone/examples", params={"status": "pending"}).json()
    assert [one["input"] for one in kept["examples"]] == [f"text {n}" for n in range(2490, 2500)]


def test_a_run_goes_on_with_the_settings_it_began_with(daemon: Daemon) -> None:
    daemon.create_adapter("phone")
    daemon.post_examples()
    daemon.script(steps=2000, step_seconds=0.01)
    run_id = daemon.train()
    daemon.wait_for(run_id, lambda run: run["step"] > 0)
    assert patch(daemon, "phone", max_tokens=64, too_long="cut").status_code == 200
    spec = (daemon.home / "runs" / str(run_id) / "spec.json").read_text()
    assert '"max_tokens": 512' in spec
    assert daemon.run(run_id)["status"] == "running"


def test_what_needs_the_base_model_waits_for_it(daemon: Daemon) -> None:
    daemon.create_adapter("phone")
    (daemon.home / "models" / "tiny" / "tokenizer.json").unlink()
    for change in ({"labels": ["now", "later", "never"]}, {"max_tokens": 100}):
        response = patch(daemon, "phone", **change)
        assert response.status_code == 409
        assert "tiny" in response.json()["detail"]
    assert patch(daemon, "phone", retention={"keep_days": 5}).status_code == 200
