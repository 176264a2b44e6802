"""All threads of the daemon allocate from one heap."""

import ctypes

_M_ARENA_MAX = -8  # malloc.h of glibc


def use_one_heap() -> None:
    """Let glibc keep one heap, whatever threads come and go; call it before there are any.

    Left to itself it makes a heap for each of the first threads, up to eight a core, and what lies
    scattered over so many is hardly ever given back: in a soak (`bench.soak`) the daemon grew by
    0.4 MiB a night, and with one heap by a fraction of that. Android's allocator is another one,
    and left alone.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_ARENA_MAX, 1)
