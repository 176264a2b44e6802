"""The daemon's own process as Linux tells it, under the names that Prometheus gives these."""

import os
import time
from pathlib import Path

from service.metrics.exposition import Exposition

_SELF = Path("/proc/self")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STARTED = time.time()


def write_process(page: Exposition) -> None:
    """Put memory, files, threads and processor time on the page; what isn't told is left out."""
    resident = _resident_bytes()
    page.one("process_resident_memory_bytes", "gauge", "Resident memory.", resident)
    page.one("process_open_fds", "gauge", "Open files.", _open_files())
    page.one("process_cpu_seconds_total", "counter", "Processor time.", time.process_time())
    page.one("process_start_time_seconds", "gauge", "Start, seconds since 1970.", _STARTED)


def _resident_bytes() -> int | None:
    try:
        return int((_SELF / "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def _open_files() -> int | None:
    try:
        return sum(1 for _ in (_SELF / "fd").iterdir()) - 1  # the one that reads the list
    except OSError:
        return None
