"""Since when the device runs: a clock that nobody sets and that goes on while it is suspended."""

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_seconds() -> float:
    """Seconds since the device was started, with those that it slept, where that is known."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def boot_id() -> str | None:
    """What names this start of the device, and no other; None where the system doesn't say."""
    try:
        return _BOOT_ID.read_text().strip() or None
    except (OSError, ValueError):
        return None
