"""Many graphs compiled into ONE context of the HTP, so that they share their static tables.

The graphs are opened one after the other with the option ep.share_ep_contexts; the last, with
ep.stop_share_ep_contexts, writes the context. The binary it writes is what a phone loads. (The x86
emulator runs such a context in the process that made it, and crashes on loading it again.)
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npu.errors import EngineError
from npu.onnx_attributes import largest_attribute
from npu.sessions import HtpSessions, Session

_log = logging.getLogger(__name__)

_failure: str | None = None
"""Why this process must not try again: what a failed build leaves in QNN spoils the next."""


@dataclass(frozen=True)
class SharedContext:
    """The sessions of one context, by the names of their models."""

    sessions: Mapping[str, Session]
    bytes: int
    """Size of the context binary."""
    spill_bytes: int
    """Memory beyond it that the context declares it may need while a graph runs."""
    seconds: float
    cached: bool
    """Whether it was loaded rather than compiled."""
    why: str = "it was to be compiled"

    def report(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "bytes": self.bytes,
            "spill_bytes": self.spill_bytes,
            "graphs": len(self.sessions),
            "seconds": round(self.seconds, 3),
            "cached": self.cached,
            "why": self.why,
        }


def build_shared_context(
    models: Mapping[str, bytes], folder: Path, sessions: HtpSessions
) -> SharedContext:
    """Compile `models` into one context, in `folder`, where their constants lie.

    Raises EngineError with the compiler's reason; from then on at every call in this process.
    """
    global _failure
    if _failure is not None:
        raise EngineError(f"a shared context failed in this process before: {_failure}")
    started = time.perf_counter()
    opened: dict[str, Session] = {}
    try:
        for name, model in models.items():
            path = folder / f"{name}.onnx"
            path.write_bytes(model)
            last = len(opened) + 1 == len(models)
            opened[name] = sessions.compile(
                path,
                {
                    "ep.context_enable": "1",
                    "ep.context_embed_mode": "0",
                    "ep.context_file_path": str(folder / context_name(name)),
                    "ep.share_ep_contexts": "1",
                    **({"ep.stop_share_ep_contexts": "1"} if last else {}),
                },
            )
            path.unlink()
        files = [*folder.glob("*.bin"), *(folder / context_name(name) for name in models)]
        context = describe_context(opened, files)
    except (EngineError, OSError) as error:
        _failure = str(error)
        _exit_without_destructors()
        raise EngineError(f"a shared context can't be made: {error}") from error
    return replace(context, seconds=time.perf_counter() - started)


def context_name(name: str) -> str:
    """The file of the small model that leads into the context, to the graph of that name."""
    return f"{name}_context.onnx"


def describe_context(sessions: Mapping[str, Session], files: Iterable[Path]) -> SharedContext:
    """The context in `files`: its binary and the models that lead into it. Raises OSError."""
    binary = spill = 0
    for path in files:
        if path.suffix == ".bin":
            binary += path.stat().st_size
        else:
            spill = max(spill, largest_attribute(path.read_bytes(), "max_size"))
    return SharedContext(sessions, binary, spill, seconds=0.0, cached=False)


def _exit_without_destructors() -> None:
    """Let this process end with its own exit code: QNN's destructors would abort it.

    What a failed build leaves behind locks a mutex that is destroyed before it. Only glibc has
    on_exit, and the emulator needs glibc.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)
    except (OSError, AttributeError) as error:
        _log.warning("the process may end in an abort after its work is done: %s", error)
