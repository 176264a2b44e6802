"""How a child process of ours is started: with nothing of ours, and no life beyond its parent's."""

from __future__ import annotations

import os
import sys

from npu.library_path import OWN_VARIABLE, LibraryPath, own_environment
from npu.qnn_libraries import LIBRARIES_VARIABLE


def child_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs `module` in a child; it dies with the calling thread."""
    return [
        sys.executable,
        *(["-P"] if sys.flags.safe_path else []),
        *("-m", "npu.with_parent", str(os.getpid()), module, *arguments),
    ]


def child_environment(path: LibraryPath | None = None) -> dict[str, str]:
    """The environment without lorad's settings, and with this path to the libraries, or none.

    Of the settings only the folder of the libraries stays, which the child has to find.
    """
    base = own_environment(os.environ) if path is None else path.environment(os.environ)
    kept = (LIBRARIES_VARIABLE, OWN_VARIABLE)
    return {
        name: text for name, text in base.items() if not name.startswith("LORAD_") or name in kept
    }
