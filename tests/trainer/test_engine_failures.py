"""The real worker with an NPU engine that fails: it ends in `torch_cpu`, and no step is lost.

At every point. Nothing is faked but the fault: `tests/npu/faults` crashes, hangs or raises in the
real onnxruntime-qnn, here or in the self-test's child. What the daemon does when a worker crashes
or hangs (`service/runs/engine_watch.py`) is done by `give_up`.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from npu.demotions import Demotion, add_demotion, read_demotions
from npu.engine_mark import EngineMark, read_mark, remove_mark
from npu.fingerprint import fingerprint
from npu.verdict import Check, judge, read_verdict, write_verdict
from tests.npu.faults import environment
from tests.trainer.workers import Worker, adapter_bytes, manifest_of, step_numbers, write_spec
from trainer.safetensors_file import SafetensorsFile

pytestmark = [pytest.mark.emulator, pytest.mark.slow]
Patch = pytest.MonkeyPatch
Event = dict[str, Any]

STEPS = 4


def prepare(home: Path, run_id: int = 1, engine: str = "qnn", form: str = "inputs") -> None:
    """A short run over few examples, with a checkpoint every two steps."""
    write_spec(home, run_id, engine, steps=STEPS, batch_size=2, checkpoint_every_steps=2)
    path = home / f"runs/{run_id}/spec.json"
    fewer = {"holdout_example_ids": [49, 50, 51], "form": form}
    path.write_text(json.dumps(json.loads(path.read_text()) | fewer))


def passed_before(home: Path) -> None:
    """The self-test has passed here once, so that no child is needed."""
    passed = Check("qnn", "inputs", True)
    write_verdict(home / "engine", judge(fingerprint(), "qnn", "asked for by name", [passed]))


def start(home: Path, monkeypatch: Patch, **fault: Any) -> Worker:
    for name, value in environment(**fault).items():
        monkeypatch.setenv(name, value)
    return Worker(home, 1)


def train(home: Path, monkeypatch: Patch, **fault: Any) -> tuple[int, list[Event]]:
    worker = start(home, monkeypatch, **fault)
    code, events = worker.wait()
    print(worker.log_text())
    return code, events


def give_up(home: Path, cause: str, step: int | None) -> EngineMark:
    """What the daemon does when a worker with this mark crashed or hung."""
    mark = read_mark(home / "engine")
    assert mark is not None
    demotion = Demotion(mark.engine, mark.fingerprint, cause, mark.phase, mark.run, step)
    add_demotion(home / "engine", demotion)
    remove_mark(home / "engine")
    return mark


def started(events: list[Event]) -> Event:
    return next(event for event in events if event["event"] == "started")


def check_finished_on_torch(home: Path, events: list[Event], first_step: int = 1) -> Event:
    """All steps to the last, in order and finite, an adapter that learned, and no mark left."""
    steps = step_numbers(events)
    assert list(steps) == list(range(first_step, STEPS + 1))
    assert all(math.isfinite(number) for numbers in steps.values() for number in numbers)
    manifest = manifest_of(home, events[-1])
    assert manifest["steps"] == STEPS
    assert manifest["engine"]["products"]["torch_cpu"]["input_gradient"] > 0
    tensors = SafetensorsFile(home / events[-1]["path"] / "adapter_model.safetensors")
    assert all(tensors.load(name).any() for name in tensors.names() if "lora_B" in name)
    assert read_mark(home / "engine") is None
    return manifest


def test_an_engine_that_works_is_tested_once_and_marked_while_it_is_used(
    home: Path, monkeypatch: Patch
) -> None:
    prepare(home, form="auto")
    worker = start(home, monkeypatch, at="nowhere", do="nothing")
    events = worker.until("evaluating")
    assert (events[0]["event"], events[0]["phase"]) == ("phase", "testing_engine")
    events += worker.until("step", step=1)
    mark = read_mark(home / "engine")
    assert mark is not None
    assert (mark.engine, mark.form, mark.phase) == ("qnn", "table", "training")
    assert (mark.run, mark.pid, mark.unexplained) == (1, worker.process.pid, 0)
    code, rest = worker.wait()
    assert code == 0
    assert started(events)["engine"]["engine"] == "qnn"
    manifest = manifest_of(home, rest[-1])
    assert list(manifest["engine"]["products"]) == ["qnn"]
    assert manifest["engine_switches"] == []
    assert read_mark(home / "engine") is None
    verdict = read_verdict(home / "engine", mark.fingerprint)
    assert verdict is not None
    assert (verdict.engine, verdict.form) == ("qnn", "table")


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"at": "import", "do": "SIGABRT"}, "ended by SIGABRT"),
        ({"at": "register", "do": "RuntimeError"}, "can't be registered: a fault"),
        ({"at": "session", "do": "RuntimeError"}, "could not open a graph: a fault"),
        ({"at": "run", "do": "SIGSEGV"}, "ended by SIGSEGV"),
    ],
)
def test_what_fails_in_the_self_test_harms_no_worker(
    home: Path, monkeypatch: Patch, fault: dict[str, Any], cause: str
) -> None:
    """Import, registration, session and first run, in the child that comes before the worker."""
    prepare(home)
    code, events = train(home, monkeypatch, **fault)
    assert code == 0
    assert (events[0]["event"], events[0]["phase"]) == ("phase", "testing_engine")
    manifest = check_finished_on_torch(home, events)
    report = started(events)["engine"]
    assert (report["requested"], report["engine"]) == ("qnn", "torch_cpu")
    assert cause in report["why"]
    (fallback,) = manifest["engine"]["fallbacks"]
    assert fallback["engine"] == "qnn"
    assert cause in fallback["cause"]
    assert manifest["engine_switches"] == [], "it was torch_cpu from the first step on"
    assert manifest["exact_resume"] is True
    (demotion,) = read_demotions(home / "engine")
    assert cause in demotion.cause
    verdict = read_verdict(home / "engine", fingerprint())
    assert verdict is not None
    assert verdict.engine == "torch_cpu"


@pytest.mark.parametrize(
    ("fault", "number", "phase"),
    [
        ({"at": "session", "do": "SIGABRT"}, signal.SIGABRT, "opening"),
        (
            {"at": "run", "do": "SIGSEGV", "phase": "first product"},
            signal.SIGSEGV,
            "first product",
        ),
    ],
)
def test_what_crashes_the_worker_at_its_start_is_not_opened_again(
    home: Path, monkeypatch: Patch, fault: dict[str, Any], number: signal.Signals, phase: str
) -> None:
    """The self-test passed in its child, and the worker crashes all the same."""
    prepare(home)
    passed_before(home)
    code, events = train(home, monkeypatch, **fault)
    assert code == -number
    assert not [event for event in events if event["event"] == "step"]
    assert give_up(home, f"{number.name} while loading", None).phase == phase
    code, events = train(home, monkeypatch, **fault)
    assert code == 0
    manifest = check_finished_on_torch(home, events)
    assert number.name in started(events)["engine"]["why"]
    assert manifest["engine_switches"] == []


def test_a_crash_in_a_step_repeats_the_step_on_torch(home: Path, monkeypatch: Patch) -> None:
    prepare(home)
    passed_before(home)
    fault = {"at": "run", "do": "SIGSEGV", "step": 3}
    code, events = train(home, monkeypatch, **fault)
    assert code == -signal.SIGSEGV
    assert list(step_numbers(events)) == [1, 2, 3]
    assert started(events)["engine"]["engine"] == "qnn"
    assert give_up(home, "SIGSEGV at step 3", 3).phase == "training"
    # The same checkpoint, gone on from by a run that was told to use torch_cpu.
    prepare(home, 2, "torch_cpu")
    shutil.copytree(home / "runs/1/checkpoints", home / "runs/2/checkpoints")

    code, events = train(home, monkeypatch, **fault)
    assert code == 0
    assert started(events)["resumed_from"] == 2
    manifest = check_finished_on_torch(home, events, first_step=3)
    (switch,) = manifest["engine_switches"]
    assert (switch["step"], switch["from"], switch["to"]) == (2, "qnn", "torch_cpu")
    assert "SIGSEGV at step 3" in switch["why"]
    assert started(events)["engine_switches"] == [switch]
    assert manifest["exact_resume"] is False
    assert manifest["exact_resume_reason"] == "engine was qnn and is now torch_cpu"
    assert manifest["engine"]["products"]["qnn"]["input_gradient"] > 0, "of the first worker"

    code, peers = Worker(home, 2).wait()
    assert code == 0
    assert step_numbers(peers) == step_numbers(events)
    assert adapter_bytes(home, 2) == adapter_bytes(home, 1)


def test_a_hang_in_a_step_repeats_the_step_on_torch(home: Path, monkeypatch: Patch) -> None:
    prepare(home)
    passed_before(home)
    fault = {"at": "run", "do": "hang", "step": 3}
    worker = start(home, monkeypatch, **fault)
    worker.until("step", step=3)
    time.sleep(0.5)
    assert worker.process.poll() is None, worker.log_text()
    worker.process.kill()
    assert worker.wait() == (-signal.SIGKILL, [])
    assert give_up(home, "no sign of life for 60 s; it was killed", 3).phase == "training"
    code, events = train(home, monkeypatch, **fault)
    assert code == 0
    manifest = check_finished_on_torch(home, events, first_step=3)
    (switch,) = manifest["engine_switches"]
    assert (switch["step"], switch["from"], switch["to"]) == (2, "qnn", "torch_cpu")
    assert "no sign of life" in switch["why"]


def test_an_exception_in_a_step_repeats_the_product_on_torch(
    home: Path, monkeypatch: Patch
) -> None:
    """Again and again: the engine is given up, in the same process."""
    prepare(home)
    passed_before(home)
    code, events = train(home, monkeypatch, at="run", do="RuntimeError", step=2)
    assert code == 0
    manifest = check_finished_on_torch(home, events)
    fallbacks = manifest["engine"]["fallbacks"]
    assert sum(fallback["count"] for fallback in fallbacks) == 3
    assert all("a fault of the test" in fallback["cause"] for fallback in fallbacks)
    assert manifest["engine"]["products"]["qnn"]["forward"] > 0
    (switch,) = manifest["engine_switches"]
    assert (switch["step"], switch["from"], switch["to"]) == (3, "qnn", "torch_cpu")
    assert "a fault of the test" in switch["why"]
    told = [event for event in events if event["event"] == "engine"]
    assert told[-1]["engine_switches"] == [switch]
    assert manifest["exact_resume"] is False
    assert read_demotions(home / "engine") == [], "the device's engine may work the next time"


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_a_worker_that_waits_for_the_self_test_ends_with_its_child(
    home: Path, monkeypatch: Patch, how: str
) -> None:
    prepare(home)
    worker = start(home, monkeypatch, at="import", do="hang")
    worker.until("phase", phase="testing_engine")
    pid = worker.process.pid
    deadline = time.monotonic() + 60
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker.process.send_signal(signal.Signals[how])
    code, events = worker.wait()
    if how == "SIGTERM":
        assert code == 75
        assert [(e["event"], e["step"], e["reason"]) for e in events] == [("stopped", 0, how)]
    else:
        assert code == -signal.SIGKILL
    child = Path(f"/proc/{children[0]}/stat")
    while child.exists() and " Z " not in child.read_text():
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.02)
    assert read_demotions(home / "engine") == []
    assert read_verdict(home / "engine", fingerprint()) is None
    assert read_mark(home / "engine") is None
