"""The worker as the daemon starts it: a real process, a real home, real signals."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import adapters, clients, examples
from storage.database import Database
from storage.tables import Adapter
from trainer.safetensors_file import SafetensorsFile

LABELS = ["now", "later", "mute"]
WORDS = ["parcel", "meeting", "sale", "mum", "train", "bill", "game", "rain", "class", "lunch"]
CANARY = "canary-7731"
ADD_MODEL = [sys.executable, "-m", "trainer.add_model", "--home"]


@pytest.fixture(scope="session")
def tiny_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-source") / "model"
    subprocess.run(
        [sys.executable, "-m", "trainer.models.tiny", str(folder)], check=True, timeout=120
    )
    return folder


@pytest.fixture
def home(tmp_path: Path, tiny_source: Path) -> Path:
    """A home with the tiny model and one adapter's examples: ids 1..48 train, 49..80 held out."""
    subprocess.run(
        [*ADD_MODEL, str(tmp_path), "--name", "tiny", "--source", str(tiny_source)],
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    with Database(tmp_path / "lorad.db") as database, database.write() as session:
        owner = clients.put(session, "owner", b"\0" * 32)
        adapter = adapters.create(
            session,
            Adapter(
                client_id=owner.id,
                name="phone",
                base_model="tiny",
                base_hash="sha256:0",
                method="first_order",
                rank=4,
                alpha=8.0,
                targets=[],
                use_rslora=False,
                labels=LABELS,
                max_tokens=256,
                too_long="cut",
                training={},
            ),
        )
        given = [
            examples.NewExample(
                input=f"{CANARY} {WORDS[i % 10]} number {i}",
                label=LABELS[i % 10 % 3],
                split="train" if i < 48 else "holdout",
            )
            for i in range(80)
        ]
        examples.add(session, adapter, given)
    return tmp_path


def write_spec(home: Path, run_id: int, engine: str = "torch_cpu", **training: Any) -> None:
    manifest = json.loads((home / "models/tiny/manifest.json").read_text())
    spec = {
        "spec_version": 1,
        "run_id": run_id,
        "adapter_id": 1,
        "adapter": "phone",
        "client": "owner",
        "method": "first_order",
        "model": {"name": "tiny", "base_hash": manifest["base_hash"]},
        "rank": 4,
        "alpha": 8.0,
        "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        "use_rslora": False,
        "labels": LABELS,
        "max_tokens": 256,
        "too_long": "cut",
        "train_example_ids": list(range(1, 49)),
        "holdout_example_ids": list(range(49, 81)),
        "active_version": None,
        "training": {"steps": 12, "learning_rate": 5e-3, "checkpoint_every_steps": 4, **training},
        "engine": engine,
        "threads": 1,
    }
    folder = home / "runs" / str(run_id)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(spec))


class Worker:
    """A running worker; iterate to read its events."""

    def __init__(self, home: Path, run_id: int) -> None:
        self.log = (home / f"worker-{run_id}.log").open("a+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainer.worker", "--home", str(home), "--run", str(run_id)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self._alarm = threading.Timer(180, self.process.kill)
        self._alarm.start()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def until(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        seen = []
        for found in self:
            seen.append(found)
            if found["event"] == event and fields.items() <= found.items():
                return seen
        raise AssertionError(f"no {event} {fields}; log:\n{self.log_text()}")

    def wait(self) -> tuple[int, list[dict[str, Any]]]:
        seen = list(self)
        code = self.process.wait(timeout=60)
        self._alarm.cancel()
        return code, seen

    def log_text(self) -> str:
        self.log.seek(0)
        return self.log.read()


def run_to_the_end(home: Path, run_id: int) -> list[dict[str, Any]]:
    worker = Worker(home, run_id)
    code, events = worker.wait()
    assert code == 0, worker.log_text()
    return events


def step_numbers(events: list[dict[str, Any]]) -> dict[int, tuple[float, float, float]]:
    return {
        event["step"]: (event["loss"], event["learning_rate"], event["grad_norm"])
        for event in events
        if event["event"] == "step"
    }


def manifest_of(home: Path, event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / event["path"] / "version.json").read_text())
    return found


def adapter_bytes(home: Path, run_id: int) -> bytes:
    folder = home / f"adapters/1/versions/run-{run_id:08d}"
    return (folder / "adapter_model.safetensors").read_bytes()


def test_a_run_publishes_a_measured_version(home: Path) -> None:
    write_spec(home, 1)
    worker = Worker(home, 1)
    code, events = worker.wait()
    assert code == 0, worker.log_text()
    assert [event["phase"] for event in events if event["event"] == "phase"] == [
        "loading",
        "evaluating_before",
        "training",
        "evaluating_after",
        "exporting",
    ]
    steps = step_numbers(events)
    assert sorted(steps) == list(range(1, 13))
    # Measured 4.8 -> 3.1: even a random model soon knows the eleven bytes that labels are made of.
    assert steps[12][0] < 0.75 * steps[1][0]
    version = events[-1]
    assert version["event"] == "version"
    manifest = manifest_of(home, version)
    metrics = manifest["metrics"]
    assert metrics["holdout"] == 32
    assert metrics["after"]["label_nll"] < metrics["before"]["label_nll"]
    assert [row["example_id"] for row in manifest["holdout_rows"]] == list(range(49, 81))
    products = manifest["engine"]["products"]["torch_cpu"]
    assert min(products.values()) > 0
    assert manifest["exact_resume"] is True
    folder = home / version["path"]
    tensors = SafetensorsFile(folder / "adapter_model.safetensors")
    assert len(tensors.names()) == 2 * 2 * 7
    assert not (home / "runs/1/checkpoints").exists(), "a finished run needs no checkpoints"
    assert CANARY not in worker.log_text()
    for path in folder.iterdir():
        assert CANARY not in path.read_text(errors="replace"), path.name


def test_the_same_run_twice_gives_the_same_bytes(home: Path) -> None:
    for run_id in (1, 2):
        write_spec(home, run_id)
        run_to_the_end(home, run_id)
    assert adapter_bytes(home, 1) == adapter_bytes(home, 2)
    write_spec(home, 3, seed=1)
    run_to_the_end(home, 3)
    assert adapter_bytes(home, 3) != adapter_bytes(home, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine", ["torch_cpu", "onnx_cpu", pytest.param("qnn", marks=pytest.mark.emulator)]
)
def test_sigkill_then_resume_is_exact(home: Path, engine: str) -> None:
    settings = {"steps": 7, "checkpoint_every_steps": 3, "batch_size": 4}
    write_spec(home, 1, engine, **settings)
    straight = run_to_the_end(home, 1)
    assert manifest_of(home, straight[-1])["engine"]["fallbacks"] == []

    write_spec(home, 2, engine, **settings)
    first = Worker(home, 2)
    before = first.until("step", step=5)
    first.process.send_signal(signal.SIGKILL)
    assert first.wait()[0] == -signal.SIGKILL

    leftover = home / "runs/2/checkpoints/.tmp-step-00000006-1"
    leftover.mkdir()
    second = Worker(home, 2)
    second_started = second.until("started")
    assert not leftover.exists()
    code, after = second.wait()
    after = second_started + after
    assert code == 0, second.log_text()
    started = next(event for event in after if event["event"] == "started")
    assert started["resumed_from"] == 3, "not from the start, and not from an unsaved step"
    assert started["exact_resume"] is True
    assert sorted(step_numbers(after)) == [4, 5, 6, 7]
    assert {**step_numbers(before), **step_numbers(after)} == step_numbers(straight)
    assert adapter_bytes(home, 1) == adapter_bytes(home, 2)
    ours, theirs = manifest_of(home, after[-1]), manifest_of(home, straight[-1])
    assert ours["metrics"] == theirs["metrics"]
    assert ours["holdout_rows"] == theirs["holdout_rows"]


@pytest.mark.parametrize("how", ["SIGTERM", "daemon gone"])
def test_stops_in_order_with_a_checkpoint(home: Path, how: str) -> None:
    write_spec(home, 1, steps=400, checkpoint_every_steps=100)
    worker = Worker(home, 1)
    worker.until("step", step=2)
    if how == "SIGTERM":
        worker.process.send_signal(signal.SIGTERM)
    else:
        assert worker.process.stdin is not None
        worker.process.stdin.close()
    code, rest = worker.wait()
    assert code == 75, worker.log_text()
    assert rest[-1]["event"] == "stopped"
    assert rest[-1]["reason"] == how
    step = rest[-1]["step"]
    assert 2 <= step < 100
    assert (home / f"runs/1/checkpoints/step-{step:08d}/manifest.json").exists()


def test_a_closed_pipe_does_not_keep_it_from_its_checkpoint(home: Path) -> None:
    write_spec(home, 1, steps=400, checkpoint_every_steps=100)
    worker = Worker(home, 1)
    worker.until("step", step=2)
    assert worker.process.stdout is not None
    worker.process.stdout.close()
    assert worker.process.wait(timeout=60) == 75, worker.log_text()
    found = [path.name for path in (home / "runs/1/checkpoints").iterdir()]
    assert max(found) > "step-00000001"


def test_only_one_worker_at_a_time(home: Path) -> None:
    write_spec(home, 1, steps=400)
    write_spec(home, 2)
    first = Worker(home, 1)
    first.until("phase", phase="training")
    assert Worker(home, 2).wait() == (3, [])
    first.process.send_signal(signal.SIGTERM)
    assert first.wait()[0] == 75


def test_a_killed_announcement_is_made_again(home: Path) -> None:
    write_spec(home, 1)
    events = run_to_the_end(home, 1)
    announced = manifest_of(home, events[-1])
    again = run_to_the_end(home, 1)
    assert [event["event"] for event in again] == ["version"]
    assert manifest_of(home, again[0]) == announced


def test_a_deleted_example_is_skipped_and_said(home: Path) -> None:
    from sqlmodel import delete

    from storage.tables import Example

    write_spec(home, 1, steps=400, checkpoint_every_steps=2)
    worker = Worker(home, 1)
    worker.until("step", step=3)
    worker.process.send_signal(signal.SIGTERM)
    worker.wait()
    spec = json.loads((home / "runs/1/spec.json").read_text())
    with Database(home / "lorad.db") as database, database.write() as session:
        session.exec(delete(Example).where(Example.id == 5))  # type: ignore[arg-type]
    assert 5 in spec["train_example_ids"]
    resumed = Worker(home, 1)
    started = resumed.until("started")[-1]
    assert started["exact_resume"] is False
    assert "example 5 was deleted" in started["exact_resume_reason"]
    resumed.until("step")
    resumed.process.send_signal(signal.SIGTERM)
    assert resumed.wait()[0] == 75


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        ("base", "expected base model tiny"),
        ("spec", "spec_version"),
        ("examples", "no|none left"),
        ("weights", "content hash"),
    ],
)
def test_failures_are_one_sentence_with_a_remedy(home: Path, break_it: str, message: str) -> None:
    write_spec(home, 1)
    path = home / "runs/1/spec.json"
    spec = json.loads(path.read_text())
    if break_it == "base":
        spec["model"]["base_hash"] = "sha256:other"
    elif break_it == "spec":
        spec["spec_version"] = 99
    elif break_it == "examples":
        spec["train_example_ids"] = [1000]
    else:
        weights = home / "models/tiny/weights.lorad"
        content = bytearray(weights.read_bytes())
        content[-5] ^= 1
        weights.write_bytes(content)
    path.write_text(json.dumps(spec))
    worker = Worker(home, 1)
    code, events = worker.wait()
    assert code == 1
    assert events[-1]["event"] == "failed"
    assert re.search(message, events[-1]["error"]), events[-1]["error"]
    assert not (home / "adapters").exists() or not list((home / "adapters").rglob("version.json"))


def test_umask_keeps_others_out(home: Path) -> None:
    write_spec(home, 1, steps=2)
    run_to_the_end(home, 1)
    for path in (home / "adapters").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
