"""Parts of a layer's work beside the frozen products, at the same time on the CPU's threads.

torch leaves some operations, among them products of small matrices in a batch, to one thread.
Handing a part to another thread costs about 50 µs, so it has to be worth it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npu.engines.one_thread_each import OneThreadEach


class SideBySide:
    """At most `threads` parts at once, each on a thread that computes alone."""

    def __init__(self, threads: int) -> None:
        """With one thread, parts come one after the other in the caller's."""
        self.threads = threads
        self._each = OneThreadEach("lorad-layer")

    def run(self, parts: Sequence[Callable[[], None]]) -> None:
        """Call all of at most `threads` parts; returns, or raises what one raised, when all are
        over."""
        if len(parts) == 1:
            parts[0]()
        else:
            self._each.run(parts)
