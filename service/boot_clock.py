"""A clock that nobody sets and that goes on while the phone is suspended."""

import time


def boot_seconds() -> float:
    """Seconds since the device was started, with those that it slept, where that is known."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
