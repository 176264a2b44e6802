"""A product that was begun, and the one thread of an engine that works on it.

    caller          begin ──▶ the adapter's products on the CPU ──▶ result() ─▶ …
                      │                                                ▲
    engine's thread   └────▶ the frozen product ───────────────────────┘

onnxruntime lets go of Python's lock while a graph runs, so both compute at the same time.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType

import torch

_Task = tuple[Callable[[], torch.Tensor], "Future[torch.Tensor]"]


class PendingProduct:
    """A product on its way.

    As a context manager it is over, well or badly, when the block is left: whatever goes wrong in
    the block, nothing computes on its operand or its matrix any more.
    """

    def __init__(self, future: Future[torch.Tensor]) -> None:
        """Wait for `future`."""
        self._future = future

    def result(self) -> torch.Tensor:
        """The product, when it is there. Raises what computing it raised."""
        return self._future.result()

    def __enter__(self) -> PendingProduct:
        """Begun already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the end; `result` raises, this does not."""
        self._future.exception()


class EngineThread:
    """Runs products one after another, in the order in which they were begun.

    The thread is made with the first product and ends with `close`, or with its owner; it never
    keeps the interpreter from exiting, whatever a native library does in it.
    """

    def __init__(self, name: str) -> None:
        """Nothing runs yet; `name` is the thread's."""
        self._name = name
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._tasks.put, None)

    def begin(self, compute: Callable[[], torch.Tensor]) -> PendingProduct:
        """Let the thread call `compute`."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._tasks,), name=self._name, daemon=True
            )
            self._thread.start()
        future: Future[torch.Tensor] = Future()
        self._tasks.put((compute, future))
        return PendingProduct(future)

    def close(self) -> None:
        """End the thread after what was begun."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None


def at_once(compute: Callable[[], torch.Tensor]) -> PendingProduct:
    """Call `compute` in this thread, now."""
    future: Future[torch.Tensor] = Future()
    _carry_out(compute, future)
    return PendingProduct(future)


def _work(tasks: queue.SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        _carry_out(*task)
        del task  # the tensors of a finished product are not this thread's to keep


def _carry_out(compute: Callable[[], torch.Tensor], future: Future[torch.Tensor]) -> None:
    try:
        future.set_result(compute())
    except BaseException as error:  # the caller's to judge, who gets it from `result`
        future.set_exception(error)
