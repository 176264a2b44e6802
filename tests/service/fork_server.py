"""Daemons that begin as a fork of a process which has loaded the daemon's modules, and waits.

To load them takes a daemon ten times the processor time of all else it does until it serves, and
the tests start hundreds. A fork differs from `python -m service.cli.main serve` in nothing that a
test looks at, but for `/proc/PID/cmdline`, what is in `sys.modules`, and the highest memory of a
process: who looks at those starts the daemon's own Python (``Daemon(…, forked=False)``).

One server for each process of tests; it ends when its socket does.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
MOST_REQUEST_BYTES = 1 << 18


class ForkedProcess:
    """What the tests use of `subprocess.Popen`, for a process that is the server's child."""

    def __init__(
        self, program: Sequence[str], environment: Mapping[str, str], output: IO[bytes]
    ) -> None:
        """Start ``program``, which is `-m`, a module and arguments, or a file and arguments."""
        self._told, theirs = socket.socketpair()
        request = json.dumps([str(Path.cwd()), list(program), dict(environment)]).encode()
        with theirs:
            socket.send_fds(_server(), [request], [output.fileno(), theirs.fileno()])
        self._answers = self._told.makefile("r")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["lorad", "serve"], timeout or 0)
        return code

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.service.fork_server", str(theirs.fileno())],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return ours


def _next_program(requests: socket.socket) -> list[str]:
    """Fork at each request, and tell whoever asked of the child's end; returns in the children."""
    children: dict[int, tuple[int, int]] = {}
    while True:
        poll = select.poll()
        for file in (requests.fileno(), *children):
            poll.register(file, select.POLLIN)
        for file, _ in poll.poll():
            if file in children:
                pid, told = children.pop(file)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(BrokenPipeError):  # nobody waits for it any more
                    os.write(told, f"{code}\n".encode())
                os.close(file)
                os.close(told)
                continue
            request, files, *_ = socket.recv_fds(requests, MOST_REQUEST_BYTES, 2)
            if not request:
                sys.exit()
            folder, program, environment = json.loads(request)
            output, told = files
            pid = os.fork()
            if pid == 0:
                _become_a_process_of_its_own(requests, output, folder, environment)
                return list(program)
            children[os.pidfd_open(pid)] = pid, told
            os.write(told, f"{pid}\n".encode())
            os.close(output)


def _become_a_process_of_its_own(
    requests: socket.socket, output: int, folder: str, environment: Mapping[str, str]
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(output, 2)
    requests.detach()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for pytest
    requests = socket.socket(fileno=int(sys.argv[1]))
    importlib.import_module("service.cli.serve")
    sys.modules["pydantic.v1"] = None  # as `lorad serve` does it, and before the daemon is loaded
    importlib.import_module("service.daemon")
    gc.collect()
    gc.freeze()
    program = _next_program(requests)
    if program[0] == "-m":
        sys.argv = ["lorad", *program[2:]]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
