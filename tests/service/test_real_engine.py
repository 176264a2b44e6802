"""The real worker on the NPU's emulator, which crashes: its run ends well on the processor."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemon import ROOT, Daemon, add_tiny_model
from tests.service.test_cli import lorad

STEPS = 12
ENVIRONMENT = {"LORAD_RETRY_SECONDS": "0.2", "LORAD_ENGINE": "qnn", "LORAD_FORM": "inputs"}

# Loaded by every Python at its start. In a worker that trains on the NPU, a thread of it reads
# address 0 once a checkpoint is there: the same end as a fault in QNN's own threads.
SEGFAULT = """
import ctypes, json, os, sys, threading, time
from pathlib import Path

def fault(home, run):
    while True:
        time.sleep(0.01)
        try:
            mark = json.loads((home / "engine/in-use.json").read_text())
        except (OSError, ValueError):
            continue
        saved = list((home / f"runs/{run}/checkpoints").glob("step-00000010*"))
        if saved and (mark["pid"], mark["phase"]) == (os.getpid(), "training"):
            ctypes.string_at(0)

if "trainer.worker" in sys.orig_argv:
    told = dict(zip(sys.orig_argv, sys.orig_argv[1:]))
    arguments = (Path(told["--home"]), told["--run"])
    threading.Thread(target=fault, args=arguments, daemon=True).start()
"""


def examples(count: int) -> list[dict[str, Any]]:
    return [
        {"input": f"message {number} {label}", "label": label, "split": split}
        for split, first in (("train", 0), ("holdout", 100))
        for number in range(first, first + count)
        for label in ("now", "later")
    ]


@pytest.mark.slow
@pytest.mark.emulator
def test_a_segfault_of_the_npu_costs_a_run_its_engine_and_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "home"
    add_tiny_model(home)
    (tmp_path / "start").mkdir()
    (tmp_path / "start/sitecustomize.py").write_text(SEGFAULT)
    environment = ENVIRONMENT | {"PYTHONPATH": f"{tmp_path / 'start'}:{ROOT}"}
    with Daemon(home, worker="trainer.worker", environment=environment) as daemon:
        training = {"steps": STEPS, "batch_size": 2, "learning_rate": 0.01}
        daemon.create_adapter("phone", training=training)
        posted = daemon.http.post(daemon.path("/examples"), json={"examples": examples(3)})
        assert posted.status_code == 201
        run_id = daemon.train("phone")
        run = daemon.wait_for(run_id, lambda run: run["finished_at"] is not None, seconds=240)
        assert (run["status"], run["error"], run["resumed_from"]) == ("completed", None, 10)
        assert run["setbacks"] == {"kills": 0, "crashes": 0, "halvings": 0}
        assert [step for step, _ in run["losses"]] == list(range(1, STEPS + 1))
        products = run["engine"]["products"]
        assert products["qnn"]["input_gradient"] > 0
        assert products["torch_cpu"]["input_gradient"] > 0
        version = json.loads(
            (home / f"adapters/1/versions/run-{run_id:08d}/version.json").read_text()
        )
        [switch] = version["engine_switches"]
        assert (switch["step"], switch["from"], switch["to"]) == (10, "qnn", "torch_cpu")
        assert "SIGSEGV" in switch["why"]
        assert not version["exact_resume"]
        assert "qnn" in version["exact_resume_reason"]
        told = daemon.http.get("/v1/adapters/phone/versions/1").json()
        for member in ("engine_switches", "exact_resume", "exact_resume_reason"):
            assert told[member] == version[member]
        engine = daemon.http.get("/v1/device").json()["engine"]
        assert (engine["requested"], engine["name"]) == ("qnn", "torch_cpu")
        assert "SIGSEGV at step " in engine["fallback"]
        assert engine["doctor"]["engine"] == "qnn", "its self-test had passed"
        [demotion] = engine["demotions"]
        assert (demotion["run"], demotion["phase"], demotion["in_force"]) == (
            run_id,
            "training",
            True,
        )
        kinds = {row["kind"] for row in daemon.http.get("/v1/history").json()["entries"]}
        assert {"run-crashed", "engine-demoted"} <= kinds
        assert "SIGSEGV" in lorad("status", home=home).stdout
    said = lorad("doctor", "--again", "--json", home=home, LORAD_ENGINE="qnn")
    assert said.returncode == 0, said.stdout + said.stderr
    assert (json.loads(said.stdout)["engine"], json.loads(said.stdout)["demotions"]) == ("qnn", [])
