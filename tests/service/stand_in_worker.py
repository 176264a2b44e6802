"""A worker that speaks the real one's protocol and trains nothing.

It reads HOME/script.json for what to do: steps, seconds a step, metrics, and how to misbehave.
``suffers`` is what befalls it before step ``suffers_at`` (0: while loading), as often as
``suffers_times`` in one run: a signal's name, `hang`, `failed` (of which ``again`` tells whether to
try again), or an exit code. With ``npu``, a fingerprint, it is as if it computed on the NPU: it
leaves the mark of the engine in use, and suffers only if the engine isn't demoted there. Its log
has a line of the halvings and of each duty that it was told.

Predictions that are asked of it are answered between steps as the stand-in predictor does, and
after ``predict_seconds``.

Like the real one it takes worker.lock, reads the spec and its texts, leaves a checkpoint every five
steps, goes on from the newest, obeys SIGTERM and the end of its standard input, looks which of its
examples are gone when something comes there, and publishes a version folder by renaming it.
"""

import argparse
import fcntl
import hashlib
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.service.stand_in_predictor import answers

ENGINE = {"requested": "auto", "engine": "stand_in", "why": "a test", "threads": 1}
DEFAULTS: dict[str, Any] = {
    "steps": 12,
    "step_seconds": 0.01,
    "holdout": 40,
    "before": {"loss": 2.0, "label_nll": 1.4, "accuracy": 0.3},
    "after": {"loss": 0.5, "label_nll": 0.4, "accuracy": 0.9},
    "active": None,
    "garbage": False,
    "fail_at": None,
    "suffers": None,
    "suffers_at": None,
    "suffers_times": 1,
    "npu": None,
    "again": True,
    "exit_code": 0,
    "no_version": False,
    "damaged_version": False,
    "deaf": False,
    "leave_child": False,
    "predict_seconds": 0.0,
    "die_after_version": False,
}


class Worker:
    def __init__(self, home: Path, run_id: int) -> None:
        self.home, self.run_id = home, run_id
        script = home / "script.json"
        self.script = DEFAULTS | (json.loads(script.read_text()) if script.exists() else {})
        self.spec = json.loads((home / "runs" / str(run_id) / "spec.json").read_text())
        self.checkpoints = home / "runs" / str(run_id) / "checkpoints"
        self.stop: str | None = None
        self.look = threading.Event()
        self.questions: deque[dict[str, Any]] = deque()
        self.forgotten: dict[int, int] = {}
        self.engine = ENGINE
        self.mark = home / "engine/in-use.json"

    def open_engine(self) -> None:
        """Choose the engine as the real worker does where there is an NPU."""
        demotions = self.home / "engine/demotions.json"
        known = json.loads(demotions.read_text())["demotions"] if demotions.exists() else []
        causes = [one["cause"] for one in known if one["fingerprint"] == self.script["npu"]]
        if causes:
            self.engine = ENGINE | {"engine": "torch_cpu", "why": f"qnn is demoted: {causes[0]}"}
        elif self.script["npu"] is not None:
            self.engine = ENGINE | {"engine": "qnn"}
            self.write_mark("opening")

    def write_mark(self, phase: str) -> None:
        """Say which engine is in use, if it is one of the NPU."""
        if self.engine["engine"] != "qnn":
            return
        mark = {"engine": "qnn", "form": "table", "phase": phase, "run": self.run_id}
        mark |= {"pid": os.getpid(), "fingerprint": self.script["npu"], "unexplained": 0}
        self.mark.parent.mkdir(exist_ok=True)
        whole = self.mark.with_suffix(".new")
        whole.write_text(json.dumps(mark))
        whole.replace(self.mark)

    def say(self, event: str, **fields: Any) -> None:
        try:
            print(json.dumps({"event": event, "run": self.run_id, **fields}), flush=True)
        except BrokenPipeError:  # nobody listens any more: no reason not to finish
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def listen(self) -> None:
        def on_term(number: int, frame: object) -> None:
            self.stop = self.stop or "SIGTERM"

        def watch() -> None:
            for line in sys.stdin:
                if line == "examples\n":
                    self.look.set()
                elif line.startswith("predict "):
                    self.questions.append(json.loads(line.removeprefix("predict ")))
                else:
                    print(line.strip(), file=sys.stderr, flush=True)
            self.stop = self.stop or "daemon gone"

        signal.signal(signal.SIGTERM, signal.SIG_IGN if self.script["deaf"] else on_term)
        if not self.script["deaf"]:
            threading.Thread(target=watch, daemon=True).start()

    def answer(self) -> None:
        """Answer what was asked since the last step."""
        while self.questions:
            question = self.questions.popleft()
            if "cancel" in question:
                continue
            print(f"question {question['id']}", file=sys.stderr, flush=True)
            time.sleep(self.script["predict_seconds"])
            for event, fields in answers(question, lambda: False):
                self.say(event, id=question["id"], **fields)

    def suffer(self, step: int) -> None:
        """Be killed, crash, fail or hang at the step that the script names."""
        if self.script["suffers_at"] != step:
            return
        if self.script["npu"] is not None and self.engine["engine"] != "qnn":
            return
        counter = self.home / "runs" / str(self.run_id) / "suffered"
        before = len(counter.read_text()) if counter.exists() else 0
        if before >= self.script["suffers_times"]:
            return
        counter.write_text("x" * (before + 1))
        match self.script["suffers"]:
            case "hang":
                time.sleep(600)
            case "failed":
                self.say("failed", step=step - 1, error="a surprise", again=self.script["again"])
                os._exit(1)
            case int(code):
                os._exit(code)
            case name:
                os.kill(os.getpid(), signal.Signals[name])

    def existing(self) -> set[int]:
        """The examples in the database; without `storage`, which takes half a second to load."""
        file = f"{(self.home / 'lorad.db').as_uri()}?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as database:
            rows = database.execute("SELECT id FROM examples WHERE status <> 'expired'")
            return {row[0] for row in rows}

    def forget(self, step: int) -> None:
        """Look which examples are gone, as the real worker does between steps."""
        print("looked at the examples", file=sys.stderr)
        ids = [*self.spec["train_example_ids"], *self.spec["holdout_example_ids"]]
        gone = set(ids) - self.existing() - set(self.forgotten)
        self.forgotten |= dict.fromkeys(gone, step)
        if gone:
            self.say("forgot", total=len(self.forgotten), step=step)

    def work(self) -> int:
        total = self.script["steps"]
        found = sorted(self.checkpoints.glob("step-*")) if self.checkpoints.exists() else []
        begin = int(found[-1].name[5:]) if found else None
        self.say("phase", phase="loading")
        assert self.existing() & set(self.spec["train_example_ids"])
        self.open_engine()
        self.suffer(0)
        self.write_mark("training")
        self.forget(begin or 0)
        self.say(
            "started",
            pid=os.getpid(),
            total_steps=total,
            resumed_from=begin,
            engine=self.engine,
            exact_resume=True,
            exact_resume_reason=None,
        )
        if self.script["garbage"]:
            self.say_garbage()
        if self.script["leave_child"] and os.fork() == 0:
            time.sleep(600)
        self.say("phase", phase="training")
        for step in range((begin or 0) + 1, total + 1):
            if self.look.is_set():
                self.look.clear()
                self.forget(step - 1)
            if self.stop:
                self.checkpoint(step - 1)
                self.say("stopped", step=step - 1, reason=self.stop)
                return 75
            self.answer()
            time.sleep(self.script["step_seconds"])
            self.suffer(step)
            if self.script["fail_at"] == step:
                self.say("failed", step=step, error="the loss is not finite")
                return 1
            self.say(
                "step",
                step=step,
                total=total,
                epoch=step / 10,
                loss=2.0 / step,
                learning_rate=1e-3,
                tokens=10,
                label_tokens=2,
                grad_norm=1.0,
                seconds=self.script["step_seconds"],
            )
            if step % 5 == 0:
                self.checkpoint(step)
        if self.script["no_version"]:
            return int(self.script["exit_code"])
        self.publish()
        if self.script["die_after_version"]:
            os.kill(os.getpid(), signal.SIGKILL)
        self.say("version", path=self.version_path())
        return int(self.script["exit_code"])

    def say_garbage(self) -> None:
        os.write(1, b"this is no JSON\n\n[]\n{}\n\xff\xfe\n")
        os.write(1, b'{"event":"step","run":1,"step":NaN}\n')
        os.write(1, b'{"event":"dance","run":%d}\n' % self.run_id)
        os.write(1, b'{"event":"step","run":%d,"step":"many"}\n' % self.run_id)
        os.write(1, b'{"event":"phase","run":99999,"phase":"another run"}\n')
        os.write(1, b"x" * 200_000 + b"\n")

    def checkpoint(self, step: int) -> None:
        (self.checkpoints / f"step-{step:08d}").mkdir(parents=True, exist_ok=True)
        self.say("checkpoint", step=step)

    def version_path(self) -> str:
        return f"adapters/{self.spec['adapter_id']}/versions/run-{self.run_id:08d}"

    def publish(self) -> None:
        folder = self.home / self.version_path()
        building = folder.with_name(f".tmp-{self.run_id}")
        building.mkdir(parents=True)
        contents = {
            "adapter_config.json": b'{"peft_type": "LORA"}',
            "adapter_model.safetensors": b"weights " * 40_000,
            "README.md": b"# an adapter\n",
            "adapter.gguf": b"GGUF" * 80_000,
        }
        for name, data in contents.items():
            (building / name).write_bytes(data)
        files = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
        if self.script["damaged_version"]:
            files["README.md"] = "0" * 64
        manifest = {
            "manifest_version": 1,
            "run_id": self.run_id,
            "adapter_id": self.spec["adapter_id"],
            "base_model": self.spec["model"]["name"],
            "base_hash": self.spec["model"]["base_hash"],
            "method": self.spec["method"],
            "rank": self.spec["rank"],
            "alpha": self.spec["alpha"],
            "targets": self.spec["targets"],
            "use_rslora": self.spec["use_rslora"],
            "steps": self.script["steps"],
            "created_at": "2026-11-29T00:00:00+00:00",
            "exact_resume": True,
            "exact_resume_reason": None,
            "metrics": {
                "holdout": self.script["holdout"],
                "train": len(self.spec["train_example_ids"]),
                "before": self.script["before"],
                "after": self.script["after"],
                "active": self.script["active"],
                "majority_accuracy": 0.5,
                "recency_prior_accuracy": 0.5,
            },
            "holdout_rows": [
                {
                    "example_id": example_id,
                    "before": {"predicted": "later", "label_nll": 1.4},
                    "after": {"predicted": "now", "label_nll": 0.4},
                }
                for example_id in self.spec["holdout_example_ids"]
                if example_id not in self.forgotten
            ],
            "engine": self.engine,
            "seconds": 1.0,
            "skipped_example_ids": sorted(self.forgotten),
            "forgotten": [
                {"example_id": one, "from_step": step} for one, step in self.forgotten.items()
            ],
            "cut_example_ids": [],
            "files": files,
        }
        (building / "version.json").write_text(json.dumps(manifest))
        building.rename(folder)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--run", type=int, required=True)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--halvings", type=int, default=0)
    arguments = parser.parse_args()
    lock = os.open(arguments.home / "worker.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3
    worker = Worker(arguments.home, arguments.run)
    worker.listen()
    print(f"the stand-in works, halved {arguments.halvings} times", file=sys.stderr)
    try:
        return worker.work()
    finally:
        if worker.engine["engine"] == "qnn":
            worker.mark.unlink()


if __name__ == "__main__":
    sys.exit(main())
