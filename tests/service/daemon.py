"""A real daemon in a process of its own, on a real socket, with a home of its own."""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.fork_server import ForkedProcess

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds that a busy machine may take for what a quiet one does at once."""

MODEL = "tiny"
CONTEXT = 512
TEMPLATE_TOKENS = 20
LAYERS = 4
SERVE = ("-m", "service.cli.main", "serve")
LOADED = "tests.service.loaded_daemon"
CHANGED = (str(Path(__file__).with_name("changed_daemon.py")),)
"""Reads CHANGED in its environment."""


def zone_where_it_is(hour: int) -> str:
    """A zone in which it is past this hour now: at noon no window of the first schedule is open."""
    behind = (datetime.now(UTC).hour - hour + 12) % 24 - 12
    return f"Etc/GMT{behind:+d}"  # POSIX: positive is west of Greenwich


def add_stand_in_model(home: Path, name: str = MODEL, base_hash: str = "sha256:tiny") -> None:
    """A model folder as `lorad model add` leaves it: real tokenizer and manifest, no weights."""
    folder = home / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token in ("<|im_start|>", "<|im_end|>")]
    )
    data = tokenizer.to_str().encode()
    (folder / "tokenizer.json").write_bytes(data)
    (folder / "weights.lorad").write_bytes(b"no weights")
    manifest = {
        "manifest_version": 1,
        "name": name,
        "base_hash": base_hash,
        "format": "int8",
        "source": "test",
        "parameters": 1234,
        "context_length": CONTEXT,
        "vocab_size": tokenizer.get_vocab_size(),
        "config": {"num_hidden_layers": LAYERS},
        "weights": {"file": "weights.lorad", "bytes": 10},
        "tokenizer": {"file": "tokenizer.json", "sha256": hashlib.sha256(data).hexdigest()},
        "chat_template": "",
        "special_tokens": {"bos_token": None, "eos_token": "<|im_end|>"},
        "template_tokens": TEMPLATE_TOKENS,
        "created_at": "2026-11-29T00:00:00Z",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def add_tiny_model(home: Path) -> None:
    """The tiny random model, added as a person would, for real workers."""
    shutil.copytree(Path(_tiny_home().name) / "models", home / "models")


@cache
def _tiny_home() -> TemporaryDirectory[str]:
    """Made once for all tests of a process, which only copy it."""
    folder = TemporaryDirectory(prefix="tiny-home-")
    home, source = Path(folder.name), Path(folder.name, "source")
    for arguments in (
        ("trainer.models.tiny", str(source)),
        ("service.cli.main", "model", "add", MODEL, str(source), "--home", str(home)),
    ):
        subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, check=True, timeout=120)
    return folder


class Daemon:
    """`lorad serve --port 0` on a home; usable as a context manager."""

    def __init__(
        self,
        home: Path,
        *,
        program: Sequence[str] = SERVE,
        worker: str = "tests.service.stand_in_worker",
        predictor: str = "tests.service.stand_in_predictor",
        environment: dict[str, str] | None = None,
        forked: bool = True,
    ) -> None:
        """Start it: a fork of a process with all modules loaded, or a Python of its own."""
        self.home = home
        self.name = "phone"
        """The adapter that the helpers below mean."""
        self.log_path = home.parent / f"{home.name}-daemon.log"
        self._program = program
        self._environment = os.environ | {
            "LORAD_HOME": str(home),
            "LORAD_PORT": "0",
            "LORAD_WORKER_MODULE": worker,
            "LORAD_PREDICTOR_MODULE": predictor,
            "LORAD_STOP_SECONDS": "10",
            "LORAD_THREADS": "1",
            "LORAD_SENSORS": "fake",
            "LORAD_RETRY_SECONDS": "3600",
            "TZ": zone_where_it_is(12),
            "PYTHONPATH": str(ROOT),
        }
        self._environment |= environment or {}
        self._forked = forked
        self.process: ForkedProcess | subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        with self.log_path.open("ab") as log, Path(os.devnull).open() as nothing:
            if self._forked:
                files = (nothing.fileno(), log.fileno(), log.fileno())
                self.process = ForkedProcess(LOADED, self._program, self._environment, files)
            else:
                self.process = subprocess.Popen(
                    [sys.executable, *self._program],
                    env=self._environment,
                    stdin=nothing,
                    stdout=log,
                    stderr=log,
                )
        state = self.home / "daemon.json"
        deadline = time.monotonic() + PATIENCE
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no daemon: {self.log()}")
            if state.exists() and json.loads(state.read_text())["pid"] == self.process.pid:
                break
            time.sleep(0.02)
        self.port: int = json.loads(state.read_text())["port"]
        self.token = (self.home / "token").read_text().strip()
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
            trust_env=False,
        )

    def log(self) -> str:
        return self.log_path.read_text()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        self.http.close()
        return self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self.http.close()

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.stop()
        finally:
            if self.process.poll() is None:
                self.kill()

    def script(self, **changes: Any) -> None:
        """What the stand-in worker shall do."""
        (self.home / "script.json").write_text(json.dumps(changes))

    def predictor(self, **changes: Any) -> None:
        """How the stand-in predictor shall misbehave."""
        (self.home / "predictor.json").write_text(json.dumps(changes))

    def path(self, rest: str = "", name: str | None = None) -> str:
        return f"/v1/adapters/{name or self.name}{rest}"

    def create_adapter(self, name: str | None = None, **fields: Any) -> dict[str, Any]:
        body = {"name": name or self.name, "base_model": MODEL, "labels": ["now", "later"]} | fields
        response = self.http.post("/v1/adapters", json=body)
        assert response.status_code == 201, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def pages(self, path: str, noun: str, **asked: Any) -> list[list[dict[str, Any]]]:
        """All pages of a list, by its cursors."""
        found = []
        cursor: dict[str, str] = {}
        while True:
            response = self.http.get(path, params=asked | cursor)
            assert response.status_code == 200, response.text
            page = response.json()
            found.append(page[noun])
            if page["next"] is None:
                return found
            cursor = {"cursor": page["next"]}

    def post_examples(
        self, name: str | None = None, train: int = 10, holdout: int = 40
    ) -> list[int]:
        batch = [
            {"input": f"{split} message {number}", "label": "now", "split": split}
            for split, count in (("train", train), ("holdout", holdout))
            for number in range(count)
        ]
        response = self.http.post(self.path("/examples", name), json={"examples": batch})
        assert response.status_code == 201, response.text
        return [example["id"] for example in response.json()["examples"]]

    def train(self, name: str | None = None, **body: Any) -> int:
        response = self.http.post(self.path("/runs", name), json=body)
        assert response.status_code == 202, response.text
        run_id: int = response.json()["id"]
        return run_id

    def spec(self, run_id: int) -> dict[str, Any]:
        spec: dict[str, Any] = json.loads((self.home / f"runs/{run_id}/spec.json").read_text())
        return spec

    def steer(self, run_id: int, verb: str, **headers: str) -> httpx.Response:
        return self.http.post(f"/v1/runs/{run_id}/{verb}", headers=headers)

    def run(self, run_id: int) -> dict[str, Any]:
        response = self.http.get(f"/v1/runs/{run_id}")
        assert response.status_code == 200, response.text
        run: dict[str, Any] = response.json()
        return run

    def adapter(self, name: str | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = self.http.get(self.path(name=name)).json()
        return answer

    def wait_for(
        self, run_id: int, condition: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE
    ) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while not condition(run := self.run(run_id)):
            assert time.monotonic() < deadline, (run, self.log())
            time.sleep(0.05)
        return run

    def wait_until_ended(self, run_id: int, seconds: float = PATIENCE) -> dict[str, Any]:
        return self.wait_for(
            run_id, lambda run: run["status"] not in ("queued", "running"), seconds
        )

    def worker_pids(self) -> set[int]:
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return {int(pid) for file in children for pid in file.read_text().split()}

    def worker_pid(self) -> int:
        """The one child process of the daemon."""
        [pid] = self.worker_pids()
        return pid


@contextmanager
def holding(lock: Path) -> Iterator[None]:
    """Hold a lock file, as another process would."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "Z (zombie)" not in status.read_text()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def resident_kb(pid: int) -> int:
    """The highest resident memory that the process has ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])
