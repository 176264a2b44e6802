"""Requests as they are counted: by method, route's pattern and status, with how long they took."""

import threading
from bisect import bisect_left
from collections import Counter

from service.metrics.exposition import Exposition

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets, in seconds."""

_DURATION = "lorad_http_request_duration_seconds"


class RequestCounts:
    """Counts requests. Safe to use from several threads; patterns are few, so it stays small."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        with self._lock:
            self._counts[method, route, status] += 1
            key = (method, route)
            buckets = self._buckets.setdefault(key, [0] * (len(BOUNDS) + 1))
            buckets[bisect_left(BOUNDS, seconds)] += 1
            self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def write(self, page: Exposition) -> None:
        """Put them on the page."""
        with self._lock:
            counts = sorted(self._counts.items())
            buckets = sorted((key, list(found)) for key, found in self._buckets.items())
            sums = dict(self._seconds)
        page.family("lorad_http_requests_total", "counter", "Requests answered, by route pattern.")
        for (method, route, status), number in counts:
            page.sample(
                "lorad_http_requests_total", number, method=method, route=route, status=status
            )
        page.family(_DURATION, "histogram", "From the request's head to the answer's end.")
        for (method, route), found in buckets:
            total = 0
            for bound, number in zip((*map(str, BOUNDS), "+Inf"), found, strict=True):
                total += number
                page.sample(f"{_DURATION}_bucket", total, method=method, route=route, le=bound)
            page.sample(f"{_DURATION}_sum", sums[method, route], method=method, route=route)
            page.sample(f"{_DURATION}_count", total, method=method, route=route)
