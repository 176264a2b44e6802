"""Processes that begin as a fork of one that has loaded the modules they need, and waits.

To load them takes a daemon ten times the processor time of all else it does until it serves, and a
worker as much as a run of a tiny model; the tests start hundreds of both. A fork differs from
`python -m …` in nothing that a test looks at, but for what `/proc` tells of its command line and
environment, what is in `sys.modules`, when threads begin, and the highest memory: who looks at
those starts a Python of its own (``forked=False``).

Two servers of each kind for each process of tests take turns, so that two processes of which a test
says that they do the same differ in their hashes and addresses, as two Pythons do. A server ends
when its socket does.
"""

import gc
import importlib
import itertools
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

ROOT = Path(__file__).parents[1]
MOST_REQUEST_BYTES = 1 << 18

_turns = itertools.count()


class ForkedProcess:
    """What the tests use of `subprocess.Popen`, for a process that is a server's child."""

    def __init__(
        self,
        loader: str,
        program: Sequence[str],
        environment: Mapping[str, str],
        files: tuple[int, int, int],
    ) -> None:
        """Start ``program``, which is `-m`, a module and arguments, or a file and arguments.

        ``loader`` is a module that imports what its kind of process needs; ``files`` become its
        standard input, output and error.
        """
        self._program = list(program)
        self._told, theirs = socket.socketpair()
        request = json.dumps([str(Path.cwd()), self._program, dict(environment)]).encode()
        with theirs:
            server = _server(loader, next(_turns) % 2)
            socket.send_fds(server, [request], [*files, theirs.fileno()])
        self._answers = self._told.makefile("r")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self._program, timeout or 0)
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
def _server(loader: str, turn: int) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(theirs.fileno()), loader],
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
            request, files, *_ = socket.recv_fds(requests, MOST_REQUEST_BYTES, 4)
            if not request:
                sys.exit()
            folder, program, environment = json.loads(request)
            *standard, told = files
            pid = os.fork()
            if pid == 0:
                _become_a_process_of_its_own(requests, standard, folder, environment)
                return list(program)
            children[os.pidfd_open(pid)] = pid, told
            os.write(told, f"{pid}\n".encode())
            for one in standard:
                os.close(one)


def _become_a_process_of_its_own(
    requests: socket.socket, standard: list[int], folder: str, environment: Mapping[str, str]
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(standard):
        os.dup2(file, number)
    requests.detach()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for pytest
    requests = socket.socket(fileno=int(sys.argv[1]))
    importlib.import_module(sys.argv[2])
    gc.collect()
    gc.freeze()
    [_] = Path("/proc/self/task").iterdir()  # a fork would have none of the other threads
    program = _next_program(requests)
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
