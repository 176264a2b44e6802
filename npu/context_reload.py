"""Whether a context that several graphs share can be loaded again on this device, seen in a child.

    python -m npu.context_reload [--soc SM8650] MODEL…

Native code that crashes on it would take the worker along, and with it the engine's good name.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from npu.child import child_command, child_environment
from npu.errors import EngineError, one_line
from npu.htp import SOCS, Soc, soc_of_part
from npu.sessions import HtpSessions, Session

SECONDS = 120.0
"""A context of a billion parameters is read from the disk and mapped."""


@dataclass(frozen=True)
class Reload:
    """What the child's end says."""

    works: bool
    why: str
    """A sentence, if it doesn't."""
    again: bool = False
    """Whether the same may end otherwise next time."""


def load_models(paths: Mapping[str, Path], sessions: HtpSessions) -> dict[str, Session]:
    """Open the models of one shared context, in the order in which they were compiled.

    The first session reads the binary beside its model and leaves the other graphs in a place that
    sessions with ep.share_ep_contexts look into first; each of them takes its own from there. They
    should be let go of in reverse order. Source: "Inference Sessions from EPContext Models with
    Weight Sharing" in https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html.

    Raises EngineError.
    """
    entries = {"ep.share_ep_contexts": "1"}
    return {name: sessions.compile(path, entries) for name, path in paths.items()}


def try_in_child(paths: Iterable[Path], soc: Soc | None, *, seconds: float = SECONDS) -> Reload:
    """Load the models in a process of its own, which dies with this one."""
    asked = [*([] if soc is None else ["--soc", soc.part]), *map(str, paths)]
    try:
        done = subprocess.run(
            child_command("npu.context_reload", *asked),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            timeout=seconds,
            text=True,
            errors="replace",
            check=False,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired:
        return Reload(False, f"it did not end within {seconds:.0f} s", again=True)
    except OSError as error:
        return Reload(False, f"no process could be started for it: {error}", again=True)
    if done.returncode == 0:
        return Reload(True, "")
    if done.returncode == -signal.SIGKILL:
        return Reload(False, "it was killed, as when the memory runs out", again=True)
    if done.returncode < 0:
        return Reload(False, f"it crashed with {signal.Signals(-done.returncode).name}")
    said = done.stderr.strip().splitlines()
    return Reload(False, one_line(RuntimeError(said[-1])) if said else "it said no reason")


def main(arguments: Sequence[str] | None = None) -> int:
    """Load the models; 0 if that went well."""
    parser = argparse.ArgumentParser(prog="python -m npu.context_reload")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--soc", choices=[soc.part for soc in SOCS])
    given = parser.parse_args(arguments)
    soc = None if given.soc is None else soc_of_part(given.soc)
    try:
        opened = load_models({path.name: path for path in given.models}, HtpSessions(soc=soc))
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    while opened:
        opened.popitem()
    return 0


if __name__ == "__main__":
    sys.exit(main())
