"""In the place of onnxruntime-qnn, early on PYTHONPATH: the real one, with a fault at one point.

The environment's FAULT is JSON: `at` which point (import, register, session, run), what to `do`
there (an exception's name, a signal's name, `hang`, `wrong numbers`), in which `process` (any,
child for the self-test's, worker), from which `step` on (the optimizer's, of a worker that trains),
how many `times`, and in which `phase` of the mark that the worker leaves on the disk.
"""

import ctypes
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import onnxruntime

FAULT = {
    "process": "any",
    "step": 0,
    "times": 1000,
    "phase": None,
    **json.loads(os.environ["FAULT"]),
}
_CHILD = "npu.selftest" in sys.orig_argv
_HERE = str(Path(__file__).resolve().parent.parent)
steps_taken = 0


def fault(point: str) -> bool:
    """Let happen what is to happen at this point; True if the numbers are to be wrong."""
    here = FAULT["process"] in ("any", "child" if _CHILD else "worker")
    if point != FAULT["at"] or not here or steps_taken < FAULT["step"] or FAULT["times"] <= 0:
        return False
    if FAULT["phase"] is not None and FAULT["phase"] != _phase():
        return False
    FAULT["times"] -= 1
    what = FAULT["do"]
    if what == "wrong numbers":
        return True
    if what == "hang":
        while True:
            time.sleep(60)
    if not what.startswith("SIG"):
        raise {"ImportError": ImportError, "RuntimeError": RuntimeError}[what](FAULT["says"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if what == "SIGSEGV":
        ctypes.string_at(0)
    elif what == "SIGABRT":
        os.abort()
    os.kill(os.getpid(), signal.Signals[what])
    return False


def _phase() -> str:
    home = Path(sys.orig_argv[sys.orig_argv.index("--home") + 1])
    phase: str = json.loads((home / "engine/in-use.json").read_text())["phase"]
    return phase


class FaultySession(onnxruntime.InferenceSession):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        fault("session")
        super().__init__(*arguments, **named)

    def run(self, *arguments: Any, **named: Any) -> list[Any]:
        wrong = fault("run")
        results = super().run(*arguments, **named)
        return [result * 1.25 for result in results] if wrong else results


def _count_steps() -> None:
    optimizer = sys.modules.get("trainer.optimizer")
    if optimizer is None:
        return
    step = optimizer.Optimizer.step

    def counted(self: Any, *arguments: Any) -> Any:
        global steps_taken
        result = step(self, *arguments)
        steps_taken = self.steps_taken
        return result

    optimizer.Optimizer.step = counted


_register = onnxruntime.register_execution_provider_library


def _register_or_fail(*arguments: Any) -> None:
    fault("register")
    _register(*arguments)


fault("import")
_count_steps()
onnxruntime.register_execution_provider_library = _register_or_fail
onnxruntime.InferenceSession = FaultySession
_spec = importlib.machinery.PathFinder.find_spec(
    "onnxruntime_qnn", [path for path in sys.path if str(Path(path).resolve()) != _HERE]
)
assert _spec is not None
assert _spec.loader is not None
_real = importlib.util.module_from_spec(_spec)
sys.modules["onnxruntime_qnn"] = _real
_spec.loader.exec_module(_real)
