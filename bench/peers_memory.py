"""A process's peak memory, as Linux counts it.

VmHWM is the largest resident set since the process started, or since it was last reset: anonymous
memory, and every page of a mapped file (weights, libraries) that was in memory at once, also where
other processes share it.
"""

from __future__ import annotations

import re
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""See proc(5)."""


def peak_mb() -> float:
    """VmHWM in MB of 10**6 bytes."""
    return peak_bytes() / 1e6


def peak_bytes() -> int:
    """VmHWM."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"expected VmHWM in {_STATUS}, found none; this bench needs Linux")
    return int(found[1]) * 1024


def reset_peak() -> None:
    """Start VmHWM again from what is resident now."""
    _CLEAR.write_text(_RESET_PEAK)
