"""Where our step's time goes: `python -m bench.peers_profile TASK.json`, a process of its own.

torch's profiler over two steps, the events of the calling thread sorted by what they serve. The
frozen products are shared with other threads: waiting for those is a part of its own. What Python
and the profiler itself take is what is left of the wall time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile

from bench.peers_ours import Ours
from bench.peers_task import Task
from npu.engine import Engine
from npu.frozen_matrix import FrozenMatrix
from npu.ledger import Direction

_FROZEN = "lorad: frozen product"
_OPTIMIZER = "Optimizer.step"
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::addmm_")
_OF_ATTENTION = ("aten::bmm", "aten::baddbmm", "aten::_softmax", "aten::softmax")
_LARGEST = 8
_PROFILED = 2
"""Steps."""


def main() -> None:
    task = Task.read(Path(sys.argv[1]))
    torch.set_num_threads(task.threads)
    print(json.dumps(profile_steps(task)))


def profile_steps(task: Task) -> dict[str, Any]:
    """Seconds a step by what they serve: the task's last steps, all others warm up.

    With adapters in the top layers, what the layers below give is kept, as for `ours_cached`.
    """
    with tempfile.TemporaryDirectory(prefix="lorad-bench-prefix-") as folder:
        ours = Ours(task, cache=None if task.layers is None else Path(folder))
        first = max(1, len(task.batches) - _PROFILED)
        for step in range(first):
            ours.step(step)
        return _profiled(ours, range(first, len(task.batches)))


def _profiled(ours: Ours, steps: Sequence[int]) -> dict[str, Any]:
    _watch(ours.engine)
    before = ours.engine.report()["seconds"][ours.engine.name]
    started = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for step in steps:
            ours.step(step)
    wall = (time.perf_counter() - started) / len(steps)
    after = ours.engine.report()["seconds"][ours.engine.name]
    serves: dict[str, float] = defaultdict(float)
    others: dict[str, float] = defaultdict(float)
    events = list(profiler.events())
    callers = {event.thread for event in events if event.name == _FROZEN}
    for event in events:
        if event.thread not in callers:
            continue
        seconds = event.self_cpu_time_total / 1e6 / len(steps)
        what = _serves(event)
        serves[what] += seconds
        if what == "element-wise, copies":
            others[event.name] += seconds
    serves["Python, profiler"] = wall - sum(serves.values())
    return {
        "seconds_a_step": round(wall, 4),
        "serves": _largest_first(serves),
        "largest_others": dict(list(_largest_first(others).items())[:_LARGEST]),
        "ledger": {kind: round((after[kind] - before[kind]) / len(steps), 4) for kind in after},
    }


def _largest_first(seconds: dict[str, float]) -> dict[str, float]:
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: round(value, 4) for name, value in ordered}


def _watch(engine: Engine) -> None:
    """Put every frozen product under a name of its own in the profile."""
    compute = engine.compute

    def watched(matrix: FrozenMatrix, direction: Direction, a: torch.Tensor) -> torch.Tensor:
        with record_function(_FROZEN):
            return compute(matrix, direction, a)

    setattr(engine, "compute", watched)  # noqa: B010  (a method, which mypy guards)


def _serves(event: Any) -> str:
    """What an event's own time is for."""
    if event.name == _FROZEN:
        return "frozen products: handing out, waiting"
    above = {event.name}
    parent = event.cpu_parent
    while parent is not None:
        above.add(parent.name)
        parent = parent.cpu_parent
    if _FROZEN in above:
        is_product = event.name in _PRODUCTS
        return "frozen products: sgemm" if is_product else "frozen products: reading codes"
    if any(name.startswith(_OPTIMIZER) for name in above):
        return "optimizer"
    if event.name in _PRODUCTS:
        return "adapter products"
    return "attention" if event.name in _OF_ATTENTION else "element-wise, copies"


if __name__ == "__main__":
    main()
