"""How a child process of ours is started: with nothing of ours, and no life beyond its parent's."""

from __future__ import annotations

import os
import sys


def child_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs `module` in a child; it dies with the calling thread."""
    return [
        sys.executable,
        *(["-P"] if sys.flags.safe_path else []),
        *("-m", "npu.with_parent", str(os.getpid()), module, *arguments),
    ]


def child_environment() -> dict[str, str]:
    """The environment without lorad's settings."""
    return {name: text for name, text in os.environ.items() if not name.startswith("LORAD_")}
