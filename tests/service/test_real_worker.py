"""The whole way over HTTP with the real worker: killed in the middle, gone on with, downloaded."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from safetensors.numpy import load

from tests.service.daemon import Daemon, add_tiny_model, kill

CANARY = "canary-0b7e"
STEPS = 150
TRAINING = {"steps": STEPS, "learning_rate": 0.01, "seed": 3}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("real")
    home = folder / "home"
    add_tiny_model(home)
    with Daemon(home, worker="trainer.worker") as daemon:
        yield daemon


def prepare(daemon: Daemon, name: str) -> None:
    """An adapter with a rule that the tiny model can learn: the answer is a word of the input."""
    daemon.create_adapter(name, labels=["now", "later"], training=TRAINING)
    examples = [
        {"input": f"{CANARY} {number} {label}", "label": label, "split": split}
        for split, numbers in (("train", range(24)), ("holdout", range(100, 116)))
        for number in numbers
        for label in ("now", "later")
    ]
    response = daemon.http.post(f"/v1/adapters/{name}/examples", json={"examples": examples})
    assert response.status_code == 201, response.text


def trained(daemon: Daemon, name: str, *breaks: str) -> dict[str, Any]:
    """Train to the end, with the worker killed or the run paused on the way."""
    run_id = daemon.train(name)
    for turn, how in enumerate(breaks):
        least = STEPS // (len(breaks) + 2) * (turn + 1)
        daemon.wait_for(run_id, lambda run, least=least: run["step"] >= least, seconds=120)
        if how == "pause":
            assert daemon.steer(run_id, "pause").status_code == 202
            run = daemon.wait_until_ended(run_id)
            assert run["status"] == "paused", run
            assert daemon.steer(run_id, "resume").status_code == 200
            continue
        kill(daemon.worker_pid())
        run = daemon.wait_until_ended(run_id)
        assert run["status"] == "interrupted", run
        assert run["error"].startswith("killed by SIGKILL at step "), run
        assert daemon.train(name) == run_id
    return daemon.wait_until_ended(run_id, seconds=240)


@pytest.mark.slow
def test_a_killed_and_paused_run_goes_on_to_the_same_adapter(real: Daemon) -> None:
    prepare(real, "phone")  # twice the same examples, options and seed
    undisturbed = trained(real, "phone")
    disturbed = trained(real, "phone", "kill", "pause")
    for version, run in ((1, undisturbed), (2, disturbed)):
        assert (run["status"], run["error"], run["version"]) == ("completed", None, version), run
        assert (run["step"], run["total_steps"], run["exact_resume"]) == (STEPS, STEPS, True)
        assert [step for step, _ in run["losses"]] == list(range(1, STEPS + 1))
    assert undisturbed["resumed_from"] is None
    assert disturbed["resumed_from"] >= 10
    assert disturbed["losses"] == undisturbed["losses"]
    assert undisturbed["losses"][-1][1] < undisturbed["losses"][0][1] / 2
    assert tensors(real, 2) == tensors(real, 1)


def tensors(daemon: Daemon, version: int) -> dict[str, bytes]:
    """The adapter's tensors out of the zip that an app would download."""
    response = daemon.http.get(f"/v1/adapters/phone/versions/{version}/download")
    assert response.status_code == 200
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert archive.testzip() is None
        config = json.loads(archive.read("adapter_config.json"))
        assert config["peft_type"] == "LORA"
        assert config["r"] == 8
        weights = load(archive.read("adapter_model.safetensors"))
    assert len(weights) == 2 * 7 * 2  # A and B of seven linears in two layers
    assert all(key.startswith("base_model.model.") for key in weights)
    assert all(tensor.any() for tensor in weights.values())
    return {key: tensor.tobytes() for key, tensor in weights.items()}


@pytest.mark.slow
def test_its_version_is_measured_and_judged(real: Daemon) -> None:
    version = real.http.get("/v1/adapters/phone/versions/1").json()
    metrics = version["metrics"]
    assert (metrics["holdout"], metrics["train"]) == (32, 48)
    assert len(version["holdout_rows"]) == 32
    better = metrics["after"]["label_nll"] < metrics["before"]["label_nll"]
    assert version["verdict"] == ("promoted" if better else "rejected")
    assert version["active"] == better
    products = version["engine"]["products"][version["engine"]["engine"]]
    assert min(products["forward"], products["input_gradient"]) > 0
    assert products["recompute"] == 0, "so small a model keeps all that its backward pass needs"
    run = real.http.get(f"/v1/runs/{version['run']}").json()
    (model,) = real.http.get("/v1/models").json()["models"]
    for engine in (version["engine"], run["engine"]):
        assert engine["base_hash"] == version["base_hash"] == model["base_hash"]
        assert list(engine["precision"]["formats"]) == ["int8"]
        assert engine["precision"]["formats"]["int8"]["matrices"] == 2 * 4 + 1
        assert 1 < engine["precision"]["bytes_per_parameter"] < 1.1


@pytest.mark.slow
def test_its_gguf_has_the_same_numbers_and_can_be_made_anew(real: Daemon, tmp_path: Path) -> None:
    path, gguf = "/v1/adapters/phone/versions/1/download", {"format": "gguf"}
    response = real.http.get(path, params=gguf)
    assert response.status_code == 200
    file = tmp_path / "phone.gguf"
    file.write_bytes(response.content)
    stored = {tensor.name: tensor.data.tobytes() for tensor in GGUFReader(file).tensors}
    expected = tensors(real, 1)
    assert len(stored) == len(expected)
    down = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"
    assert stored["blk.1.ffn_down.weight.lora_b"] == expected[down]
    [kept] = real.home.glob("adapters/*/versions/run-00000001/adapter.gguf")
    kept.unlink()
    again = real.http.get(path, params=gguf)
    assert (again.status_code, again.content) == (200, response.content)
    assert not list(real.home.glob("tmp?*"))


@pytest.mark.slow
def test_the_gguf_of_an_imported_version_has_the_same_numbers(real: Daemon, tmp_path: Path) -> None:
    path = "/v1/adapters/phone/versions"
    given = real.http.get(f"{path}/1/download").content
    zipped = {"Content-Type": "application/zip"}
    imported = real.http.post(f"{path}/import", content=given, headers=zipped)
    assert imported.status_code == 201, imported.text
    [folder] = real.home.glob("adapters/*/versions/import-*")
    assert not (folder / "adapter.gguf").exists(), "it is made when somebody asks for it"
    stored = []
    for number in (1, imported.json()["number"]):
        response = real.http.get(f"{path}/{number}/download", params={"format": "gguf"})
        assert response.status_code == 200, response.text
        file = tmp_path / f"{number}.gguf"
        file.write_bytes(response.content)
        stored.append({one.name: one.data.tobytes() for one in GGUFReader(file).tensors})
    own, theirs = stored
    assert theirs == own
    assert len(own) == 2 * 7 * 2


@pytest.mark.slow
def test_no_log_holds_a_text(real: Daemon) -> None:
    logs = [real.log_path, *real.home.glob("runs/*/worker.log")]
    assert len(logs) == 3
    for log in logs:
        assert CANARY not in log.read_text(), log


@pytest.mark.slow
def test_examples_deleted_amid_are_forgotten_and_the_run_goes_on(real: Daemon) -> None:
    prepare(real, "forgetting")
    run_id = real.train("forgetting")
    real.wait_for(run_id, lambda run: run["step"] >= 20, seconds=120)
    spec = real.spec(run_id)
    gone = [spec["train_example_ids"][0], spec["holdout_example_ids"][0]]
    for one in gone:
        response = real.http.delete(f"/v1/adapters/forgetting/examples/{one}")
        assert response.json()["run"] == run_id
    real.wait_for(run_id, lambda run: run["forgotten"] == 2, seconds=60)
    run = real.wait_until_ended(run_id, seconds=240)
    assert (run["status"], run["forgotten"], run["step"]) == ("completed", 2, STEPS)
    version = real.http.get(f"/v1/adapters/forgetting/versions/{run['version']}").json()
    assert version["seen_deleted"] == 2
    assert len(version["holdout_rows"]) == 31


@pytest.mark.slow
def test_a_failure_of_the_real_worker_is_told(real: Daemon, tmp_path: Path) -> None:
    """Weights damaged after they were added: found by the worker, which hashes them."""
    prepare(real, "damaged")
    weights = real.home / "models" / "tiny" / "weights.lorad"
    whole = weights.read_bytes()
    damaged = bytearray(whole)
    damaged[-5] ^= 0x40
    weights.chmod(0o600)
    weights.write_bytes(damaged)
    try:
        run = trained(real, "damaged")
    finally:
        weights.write_bytes(whole)
    assert run["status"] == "failed"
    assert run["error"]
    assert run["version"] is None
