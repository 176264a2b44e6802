"""Virtual environments for peers whose requirements contradict ours: made once, kept, used again.

The torch in them is the release that runs here, a CPU build, so that all contestants have the same
matrix products. It comes first and by itself, as in the Makefile: from LORAD_TORCH_INDEX if that is
set, else from a wheel on disk, else through uv, which knows PyTorch's index of CPU builds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

DEFAULT_FOLDER = Path.home() / ".cache" / "lorad-bench"

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "litgpt": ("litgpt==0.5.13", "huggingface-hub<1.4"),
    "torchtune": ("torchtune==0.6.1", "torchao==0.9.0"),
}
"""What is pinned beside the peer is what it fails to import with in a newer release."""

_SECONDS = 900
_COMPLETE = "complete"


class NotInstalledError(RuntimeError):
    """An environment can't be made; says why."""


def interpreter_of(peer: str, folder: Path) -> str:
    """The Python of the peer's environment below `folder`, which is made if need be.

    Raises NotInstalledError.
    """
    place = folder / peer
    python = place / "bin" / "python"
    wanted = "\n".join((_torch(), *REQUIREMENTS[peer]))
    marker = place / _COMPLETE
    if marker.is_file() and marker.read_text() == wanted:
        return str(python)
    shutil.rmtree(place, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(place)])
    _install_torch(python)
    _run([*_pip(python), "install", _torch(), *REQUIREMENTS[peer]])
    _run([str(python), "-c", f"import torch, {peer}; assert torch.version.cuda is None"])
    marker.write_text(wanted)
    return str(python)


def _torch() -> str:
    return f"torch=={torch.__version__.partition('+')[0]}"


def _install_torch(python: Path) -> None:
    index = os.environ.get("LORAD_TORCH_INDEX")
    if index:
        _run([*_pip(python), "install", "--no-deps", "--index-url", index, _torch()])
        return
    try:
        _run([*_pip(python), "install", "--no-deps", "--no-index", _torch()])
    except NotInstalledError:
        uv = [sys.executable, "-m", "uv", "pip", "install", "--python", str(python)]
        _run([*uv, "--no-deps", "--torch-backend", "cpu", _torch()])


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"{' '.join(command)}: not done in {_SECONDS} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        reason = said[-1] if said else f"exit code {done.returncode}"
        raise NotInstalledError(f"{' '.join(command)}: {reason}")
