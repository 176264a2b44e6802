"""The real worker; what it says it also notes in a file that outlives it and its daemon.

The daemon runs it in the place of `trainer.worker` (LORAD_WORKER_MODULE). What a daemon reports
can't tell what a worker had done when both were killed: these notes can.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer import worker
from trainer.protocol import Protocol

NOTES = "LORAD_BENCH_NOTES"
"""The variable that names the folder of the notes."""


class NotingProtocol(Protocol):
    """JSON lines to the daemon, each of them first appended to a file of this process."""

    def __init__(self, always: Mapping[str, Any]) -> None:
        """Take over fd 1, and begin the notes in the file ``<folder>/<run>/<time>-<pid>.jsonl``."""
        super().__init__(always)
        folder = Path(os.environ[NOTES]) / str(always["run"])
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{time.time_ns():020d}-{os.getpid()}.jsonl"
        self._notes = path.open("ab", buffering=0)

    def emit(self, event: str, fields: Mapping[str, Any]) -> None:
        """Note one event, then send it."""
        self._notes.write(
            json.dumps({"event": event, "at": time.time(), **fields}).encode() + b"\n"
        )
        super().emit(event, fields)


def main() -> None:
    """The worker's command line."""
    # mypy allows no class to be put in another's place; that is what this module is for.
    setattr(worker, "Protocol", NotingProtocol)  # noqa: B010
    worker.main()


if __name__ == "__main__":
    main()
