"""Runs from the trigger to their end, with a stand-in worker that speaks the real protocol."""

import json
import time
import zipfile
from io import BytesIO
from typing import Any

import pytest

from tests.service.daemon import Daemon, add_stand_in_model, until


def test_a_run_becomes_an_active_version(ready: Daemon) -> None:
    assert "10 new training examples are waiting" in ready.adapter()["not_training_because"]
    run_id = ready.train()
    run = ready.wait_until_ended(run_id)
    assert (run["status"], run["error"], run["version"]) == ("completed", None, 1)
    assert (run["step"], run["total_steps"]) == (12, 12)
    assert [step for step, _ in run["losses"]] == list(range(1, 13))
    assert run["loss"] == pytest.approx(2 / 12)
    assert run["engine"]["engine"] == "stand_in"
    assert run["started_at"] <= run["finished_at"]
    adapter = ready.adapter()
    counts = adapter["examples"]
    assert (counts["train"], counts["holdout"]) == (10, 40)
    assert (counts["pending"], counts["used"], counts["expired"]) == (0, 10, 0)
    assert adapter["current_run"] is None
    assert adapter["active_version"]["number"] == 1
    assert "version 1 was trained on all 10" in adapter["not_training_because"]
    [version] = ready.http.get(ready.path("/versions")).json()["versions"]
    assert (version["verdict"], version["active"], version["run"]) == ("promoted", True, run_id)
    assert "0.4000" in version["verdict_reason"]
    assert "holdout_rows" not in version
    detail = ready.http.get(ready.path("/versions/1")).json()
    assert len(detail["holdout_rows"]) == 40
    assert version == {key: value for key, value in detail.items() if key != "holdout_rows"}
    assert ready.http.get(ready.path("/runs")).json()["runs"][0]["version"] == 1
    assert "the stand-in works" in (ready.home / f"runs/{run_id}/worker.log").read_text()


def test_the_spec_is_what_the_contract_says(own: Daemon) -> None:
    run_id = own.train(training={"steps": 7, "learning_rate": None, "seed": 5})
    own.wait_until_ended(run_id)
    spec = json.loads((own.home / f"runs/{run_id}/spec.json").read_text())
    assert spec == {
        "spec_version": 1,
        "run_id": run_id,
        "adapter_id": 1,
        "adapter": "phone",
        "client": "owner",
        "method": "first_order",
        "model": {"name": "tiny", "base_hash": "sha256:tiny"},
        "rank": 8,
        "alpha": 16.0,
        "targets": [
            "q_proj",
            "k_proj",
            "v_proj",
            "o_proj",
            "gate_proj",
            "up_proj",
            "down_proj",
        ],
        "use_rslora": False,
        "top_layers": None,
        "prefix_cache_mb": 256,
        "labels": ["now", "later"],
        "max_tokens": 512,
        "too_long": "refuse",
        "train_example_ids": list(range(1, 11)),
        "holdout_example_ids": list(range(11, 51)),
        "active_version": None,
        "warm_start": None,
        "training": {
            "seed": 5,
            "batch_size": 8,
            "epochs": 2.0,
            "steps": 7,
            "learning_rate": None,
            "schedule": "linear",
            "warmup_fraction": 0.1,
            "max_grad_norm": 1.0,
            "weight_decay": 0.0,
            "validation_fraction": 0.0,
            "patience": None,
            "checkpoint_every_steps": 10,
            "checkpoint_every_seconds": 120,
        },
        "engine": "auto",
        "form": "auto",
        "soc": None,
        "threads": 1,
        "memory_mb": 1024,
    }
    second = own.train()
    own.wait_until_ended(second)
    spec = json.loads((own.home / f"runs/{second}/spec.json").read_text())
    assert spec["active_version"] == f"adapters/1/versions/run-{run_id:08d}"


def test_the_download_is_a_zip_and_always_the_same(ready: Daemon) -> None:
    run_id = ready.train()
    ready.wait_until_ended(run_id)
    path = ready.path("/versions/1/download")
    first, second = ready.http.get(path), ready.http.get(path, params={"format": "peft"})
    assert first.status_code == 200
    assert first.headers["content-type"] == "application/zip"
    assert first.headers["content-length"] == str(len(first.content))
    assert first.content == second.content
    with zipfile.ZipFile(BytesIO(first.content)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "README.md",
            "adapter_config.json",
            "adapter_model.safetensors",
        ]
        assert archive.read("adapter_model.safetensors") == b"weights " * 40_000
        for entry in archive.infolist():
            assert entry.compress_type == zipfile.ZIP_STORED
            assert not entry.flag_bits & 0x08  # sizes stand before the data, not behind it
    [readme] = ready.home.glob(f"adapters/*/versions/run-{run_id:08d}/README.md")
    readme.unlink()
    assert ready.http.get(path).status_code == 410


def test_the_gguf_download_is_the_versions_own_file(ready: Daemon) -> None:
    run_id = ready.train()
    ready.wait_until_ended(run_id)
    response = ready.http.get(ready.path("/versions/1/download"), params={"format": "gguf"})
    assert response.status_code == 200
    assert response.content == b"GGUF" * 80_000
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-length"] == "320000"
    assert response.headers["content-disposition"] == (
        f'attachment; filename="{ready.name}-1.gguf"'
    )


def test_a_version_that_has_no_gguf_file_and_can_give_none_says_why(ready: Daemon) -> None:
    run_id = ready.train()
    ready.wait_until_ended(run_id)
    path, gguf = ready.path("/versions/1/download"), {"format": "gguf"}
    [folder] = ready.home.glob(f"adapters/*/versions/run-{run_id:08d}")
    (folder / "adapter.gguf").unlink()
    response = ready.http.get(path, params=gguf)  # the stand-in model has no shape
    assert response.status_code == 409
    assert "add the model again" in response.json()["detail"]
    assert sorted(one.name for one in folder.iterdir()) == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "version.json",
    ]
    (folder / "adapter_model.safetensors").unlink()
    assert ready.http.get(path, params=gguf).status_code == 410


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"no_version": True}, "left no whole version; see runs/"),
        ({"after": {"loss": float("nan")}}, "values that no field can take"),
        ({"damaged_version": True}, "README.md has SHA-256"),
    ],
)
def test_an_end_without_a_whole_version_is_a_failure(
    ready: Daemon, script: dict[str, Any], words: str
) -> None:
    ready.script(**script)
    run = ready.wait_until_ended(ready.train())
    assert run["status"] == "failed"
    assert words in run["error"]
    assert ready.adapter()["active_version"] is None
    assert ready.adapter()["examples"]["used"] == 0


def test_malformed_lines_are_survived(ready: Daemon) -> None:
    ready.script(garbage=True)
    run = ready.wait_until_ended(ready.train())
    assert (run["status"], run["version"]) == ("completed", 1)
    assert ready.log().count("not an event") >= 8
    assert "xxxx" not in ready.log()


def test_a_worker_killed_right_after_publishing_has_finished(ready: Daemon) -> None:
    ready.script(die_after_version=True)
    run = ready.wait_until_ended(ready.train())
    assert (run["status"], run["version"], run["error"]) == ("completed", 1, None)


def test_what_a_worker_leaves_behind_is_taken_down(ready: Daemon) -> None:
    """A child that keeps the worker's pipe open must not keep the next run waiting."""
    ready.script(leave_child=True)
    assert ready.wait_until_ended(ready.train())["status"] == "completed"
    ready.script()
    assert ready.wait_until_ended(ready.train(), seconds=20)["status"] == "completed"


def test_runs_are_paged_newest_first(ready: Daemon) -> None:
    made = []
    for _ in range(3):
        made.append(ready.train())
        ready.wait_until_ended(made[-1])
    first = ready.http.get(ready.path("/runs"), params={"limit": 2}).json()
    assert [run["id"] for run in first["runs"]] == made[:0:-1]
    assert [run["version"] for run in first["runs"]] == [3, 2]
    query = {"limit": 2, "cursor": first["next"]}
    second = ready.http.get(ready.path("/runs"), params=query).json()
    assert ([run["id"] for run in second["runs"]], second["next"]) == (made[:1], None)
    for bad in ("garbage", first["next"] + "=", "cnVuczotMQ"):
        response = ready.http.get(ready.path("/runs"), params={"cursor": bad})
        assert response.status_code == 422
        assert response.json()["errors"][0]["field"] == "query.cursor"


def test_a_second_trigger_is_refused_while_one_is_under_way(ready: Daemon) -> None:
    ready.script(steps=100, step_seconds=0.05)
    run_id = ready.train()
    response = ready.http.post(ready.path("/runs"), json={})
    assert response.status_code == 409
    assert f"run {run_id}" in response.json()["detail"]
    ready.wait_for(run_id, lambda run: run["status"] == "running")
    assert ready.http.post(ready.path("/runs")).status_code == 409
    assert ready.adapter()["not_training_because"] is None


def test_one_adapter_after_the_other(ready: Daemon) -> None:
    ready.create_adapter("mail")
    ready.post_examples("mail")
    ready.script(steps=20, step_seconds=0.05)
    first, second = ready.train(), ready.train("mail")
    until(lambda: ready.run(first)["status"] == "running")
    assert ready.run(second)["status"] == "queued"
    why = ready.adapter("mail")["not_training_because"]
    assert f"run {second} " in why
    assert "waits for another training" in why
    assert str(first) not in why.replace(str(second), "")
    seen = set()
    while ready.run(second)["status"] in ("queued", "running"):
        seen.add((ready.run(first)["status"], ready.run(second)["status"]))
        time.sleep(0.02)
    assert ("running", "running") not in seen
    assert ready.run(first)["version"] == ready.run(second)["version"] == 1


def test_a_worse_version_never_becomes_active(ready: Daemon) -> None:
    ready.wait_until_ended(ready.train())
    measured = {"loss": 0.9, "label_nll": 0.9, "accuracy": 0.8}
    ready.script(after=measured, active={"loss": 0.5, "label_nll": 0.4, "accuracy": 0.9})
    ready.wait_until_ended(ready.train())
    better, few = {"loss": 0.3, "label_nll": 0.2, "accuracy": 0.9}, 29
    ready.script(after=better, active=measured, holdout=few)
    ready.wait_until_ended(ready.train())
    listed = ready.http.get(ready.path("/versions")).json()["versions"]
    assert [(v["number"], v["verdict"], v["active"]) for v in listed] == [
        (3, "insufficient", False),
        (2, "rejected", False),
        (1, "promoted", True),
    ]
    ready.script(after=better, active={"loss": 0.5, "label_nll": 0.4, "accuracy": 0.9})
    ready.wait_until_ended(ready.train())
    assert ready.adapter()["active_version"]["number"] == 4


@pytest.mark.parametrize("change", ["gone", "another"])
def test_a_base_model_that_changed_is_refused_naming_both(own: Daemon, change: str) -> None:
    folder = own.home / "models" / "tiny"
    if change == "gone":
        folder.rename(own.home / "models" / "other")
    else:
        add_stand_in_model(own.home, base_hash="sha256:another")
    response = own.http.post("/v1/adapters/phone/runs", json={})
    assert response.status_code == 409
    detail = response.json()["detail"]
    words = ["tiny"] if change == "gone" else ["sha256:tiny", "sha256:another"]
    assert all(word in detail for word in words)
    assert detail == own.adapter()["not_training_because"]


def test_a_run_without_training_examples_is_refused(shared: Daemon) -> None:
    shared.create_adapter("measured-only")
    shared.post_examples("measured-only", train=0, holdout=3)
    response = shared.http.post("/v1/adapters/measured-only/runs", json={})
    assert response.status_code == 409
    reason = shared.adapter("measured-only")["not_training_because"]
    assert "no training examples" in reason


def test_logs_hold_no_text_of_an_example(own: Daemon) -> None:
    canary = "canary-5f3a"
    good = {"input": f"{canary} in", "label": "now", "external_id": canary}
    path = "/v1/adapters/phone/examples"
    assert own.http.post(path, json=good).status_code == 201
    for bad in ({"label": canary}, {canary: 1}, {"input": canary + "\0"}, {"split": canary}):
        assert own.http.post(path, json=good | bad).status_code == 422
    own.http.get(f"/v1/adapters/{canary}")
    own.http.get(f"/{canary}?{canary}={canary}")
    own.http.post(path, content=f'{{"input": "{canary}'.encode())
    run_id = own.train()
    own.wait_until_ended(run_id)
    assert canary not in own.log()
    assert canary not in (own.home / f"runs/{run_id}/worker.log").read_text()
    own.stop()
    assert canary not in own.log()
