"""The parts of one product at the same time, each on a thread that computes alone.

    caller      run([p0, p1, p2]) ── p0 ───┐ waits ─▶ all parts are over
                 │                         │
    thread 1     ├──▶ p1 ──────────────────┤
    thread 2     └──▶ p2 ──────────────────┘

torch would share each single operation among its own threads, and wait at the end of each for the
slowest: a dozen times a tile, where this waits once a product.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Sequence

import torch

from npu.one_torch_thread import one_torch_thread

_Part = Callable[[], None]
_Outcomes = list[BaseException | None]
_Task = tuple[_Part, _Outcomes, "queue.SimpleQueue[None]"]

_SECONDS_BETWEEN_LOOKS = 0.1
"""A wait looks by itself as well: a signal handler that raises may take away what would end it."""


class OneThreadEach:
    """The caller's thread and others of its own; in each, torch computes with one thread.

    They are made when there are parts for them and end with `close`, or with their owner; they
    never keep the interpreter from exiting. A forked child makes its own.
    """

    def __init__(self, name: str) -> None:
        """Nothing runs yet; the threads are called `name`-1, `name`-2 and so on."""
        self._name = name
        self._tasks: list[queue.SimpleQueue[_Task | None]] = []
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()

    def run(self, parts: Sequence[_Part]) -> None:
        """Call all `parts`, the first in the caller's thread.

        Returns, or raises what a part raised, when all are over. How many threads torch uses in the
        caller's thread, and in threads yet to come, is then what it was.
        """
        self._make_threads(len(parts) - 1)
        outcomes: _Outcomes = []
        wake_up: queue.SimpleQueue[None] = queue.SimpleQueue()
        begun = 0
        with one_torch_thread():
            try:
                for part, tasks in zip(parts[1:], self._tasks, strict=False):
                    tasks.put((part, outcomes, wake_up))
                    begun += 1
                parts[0]()
            finally:
                _wait(outcomes, begun, wake_up)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def close(self) -> None:
        """End the threads."""
        for tasks in self._tasks:
            tasks.put(None)
        if self._process == os.getpid():
            for thread in self._threads:
                thread.join()
        self._tasks, self._threads = [], []

    def _make_threads(self, count: int) -> None:
        if self._process != os.getpid():
            self._tasks, self._threads, self._process = [], [], os.getpid()
        while len(self._threads) < count:
            tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
            weakref.finalize(self, tasks.put, None)
            name = f"{self._name}-{len(self._threads) + 1}"
            thread = threading.Thread(target=_work, args=(tasks,), name=name, daemon=True)
            thread.start()
            self._tasks.append(tasks)
            self._threads.append(thread)


def _wait(outcomes: _Outcomes, count: int, wake_up: queue.SimpleQueue[None]) -> None:
    """Wait for `count` outcomes, also when a signal handler raises; that is then raised."""
    interruption: BaseException | None = None
    while len(outcomes) < count:
        try:
            wake_up.get(timeout=_SECONDS_BETWEEN_LOOKS)
        except queue.Empty:
            pass
        except BaseException as error:
            interruption = error
    if interruption is not None:
        raise interruption


@torch.no_grad()
def _work(tasks: queue.SimpleQueue[_Task | None]) -> None:
    torch.set_num_threads(1)
    while (task := tasks.get()) is not None:
        part, outcomes, wake_up = task
        outcome: BaseException | None = None
        try:
            part()
        except BaseException as error:  # the caller's to judge, who gets it from `run`
            outcome = error
        del task, part  # the tensors of a part that is over are not this thread's to keep
        outcomes.append(outcome)
        wake_up.put(None)
