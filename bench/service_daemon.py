"""A live daemon on a home of its own, and what the system says of its process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.service_load import BenchError, Connection

ROOT = Path(__file__).resolve().parents[1]

START_SECONDS = 300.0
"""Adopting a version of a million examples takes a while."""
STOP_SECONDS = 60.0
POLL_SECONDS = 0.005
MODEL = "bench"


def prepare_home(home: Path, source: str | None) -> None:
    """Make a home with one base model, `MODEL`: from ``source``, or the tiny random one."""
    if source is None:
        source = str(home.parent / "tiny-model")
        _run("trainer.models.tiny", source)
    _run("service.cli.main", "model", "add", MODEL, source, "--home", str(home))


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")


class Daemon:
    """`lorad serve` on a home; a context manager.

    ``start_seconds`` is the time from before the process existed to the first 200 of /healthz.
    """

    def __init__(
        self,
        home: Path,
        environment: Mapping[str, str] | None = None,
        *,
        module: str = "service.cli.main",
    ) -> None:
        """Start it, with these settings besides, and wait until it answers.

        ``module`` is run with the argument ``serve``.

        Raises:
            BenchError: it ended, or said nothing for minutes.
        """
        self.home = home
        self._log = home.parent / f"{home.name}.log"
        self.port = _free_port()
        settings: dict[str, str] = {
            "LORAD_HOME": str(home),
            "LORAD_PORT": str(self.port),
            "LORAD_ENGINE": "torch_cpu",
            "LORAD_SENSORS": "fake",
            "PYTHONPATH": str(ROOT),
        } | dict(environment or {})
        with self._log.open("ab") as log:
            began = time.perf_counter()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, "serve"],
                env=os.environ | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_for_health(began)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - began

    def __enter__(self) -> Daemon:
        """The daemon, which answers."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End it."""
        self.stop()

    def connect(self) -> Connection:
        """A connection of the owner."""
        return Connection(self.port, (self.home / "token").read_text().strip())

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def log(self) -> Path:
        """What it and those before it on this home wrote to standard output and error."""
        return self._log

    def memory_mb(self, field: str = "VmRSS") -> float:
        """A figure of /proc/PID/status, in units of 1024 * 1024 bytes."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return round(int(value.split()[0]) / 1024, 1)
        raise BenchError(f"/proc/{self._process.pid}/status has no {field}; this bench needs Linux")

    def kill(self) -> None:
        """End it by SIGKILL; its worker, if it has one, finds that out by itself."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it as `kill` would, and by SIGKILL if it doesn't obey."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_for_health(self, began: float) -> None:
        while time.perf_counter() - began < START_SECONDS:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError):
                if Connection(self.port, "").request("GET", "/healthz").status == 200:
                    return
            time.sleep(POLL_SECONDS)
        raise BenchError(f"no daemon answers:\n{self._log.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
