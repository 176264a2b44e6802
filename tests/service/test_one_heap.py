"""The daemon's memory is one heap, however many threads have answered requests."""

import ctypes
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.service.daemon import ROOT, Daemon

_RESERVED = 32 * 2**20
"""Each further heap reserves 64 MiB of addresses, most of which stay inaccessible."""


def further_heaps(pid: int) -> int:
    found = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        place = re.match(r"([0-9a-f]+)-([0-9a-f]+) ---p 00000000 00:00 0", line)
        found += place is not None and int(place[2], 16) - int(place[1], 16) >= _RESERVED
    return found


glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"),
    reason="another C library than glibc has no heap for each thread",
)


@glibc
@pytest.mark.parametrize(("before", "expected"), [("", True), ("use_one_heap()", False)])
def test_threads_get_heaps_of_their_own_unless_told_otherwise(before: str, expected: bool) -> None:
    program = (
        "import os, threading\n"
        "from service.one_heap import use_one_heap\n"
        "from tests.service.test_one_heap import further_heaps\n"
        f"{before}\n"
        "kept = []\n"
        "def allocate(): kept.extend(bytes(2000) for _ in range(100))\n"
        "threads = [threading.Thread(target=allocate) for _ in range(4)]\n"
        "for one in threads: one.start()\n"
        "for one in threads: one.join()\n"
        "print(further_heaps(os.getpid()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (int(done.stdout) > 0) == expected


@glibc
def test_a_daemon_that_has_answered_many_at_once_has_one(home: Path) -> None:
    with Daemon(home, forked=False) as daemon, ThreadPoolExecutor(12) as pool:
        answers = pool.map(lambda _: daemon.http.get("/v1/history"), range(60))
        assert {answer.status_code for answer in answers} == {200}
        assert further_heaps(daemon.process.pid) == 0
