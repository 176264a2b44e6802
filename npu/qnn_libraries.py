"""Qualcomm's libraries for Android, in a folder of the user's, where no package brings them.

The package onnxruntime-qnn exists for glibc only. On Android the same libraries lie in one folder,
put there by `termux/fetch-qnn.sh` from what the user supplies; whoever starts a process that
computes names the folder in its environment.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from npu.errors import EngineError

LIBRARIES_VARIABLE = "LORAD_QNN_LIBRARIES"
FETCH = "`sh termux/fetch-qnn.sh` says what is needed and puts it there"

_PROVIDER = "libonnxruntime_providers_qnn.so"
_HTP = "libQnnHtp.so"
_SYSTEM = "libQnnSystem.so"


@dataclass(frozen=True)
class QnnLibraries:
    """The folder that holds them all: the provider, QNN, and what runs on the DSP."""

    folder: Path

    @property
    def provider(self) -> Path:
        """onnxruntime's provider. Raises EngineError if it isn't there."""
        return self._file(_PROVIDER)

    @property
    def htp(self) -> Path:
        """QNN's library for the HTP; absolute, since onnxruntime looks beside it for others.

        Raises EngineError if it isn't there.
        """
        return self._file(_HTP)

    def missing(self) -> list[str]:
        """Those without which nothing can be opened, and that aren't there."""
        wanted = (_PROVIDER, _HTP, _SYSTEM)
        return [name for name in wanted if not (self.folder / name).is_file()]

    @property
    def identity(self) -> str:
        """`sha256:` and a hash over the names and contents of all that lies in the folder."""
        files = sorted(file for file in self.folder.glob("*.so") if file.is_file())
        stamps = tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
        return _identity(self.folder, stamps)

    def _file(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise EngineError(f"expected {name} in {self.folder}, found none: {FETCH}")
        return path


def user_libraries() -> QnnLibraries | None:
    """Those of the folder that the environment names; None if there are none or a package is."""
    named = os.environ.get(LIBRARIES_VARIABLE)
    if not named or has_package():
        return None
    folder = Path(named).expanduser().absolute()
    return QnnLibraries(folder) if folder.is_dir() else None


def has_package() -> bool:
    """Whether the package onnxruntime-qnn is installed, which is taken before any folder."""
    return importlib.util.find_spec("onnxruntime_qnn") is not None


@lru_cache(maxsize=4)
def _identity(folder: Path, stamps: tuple[tuple[str, int, int], ...]) -> str:
    """Once a process for the same files, which are some 100 MB."""
    lines = "".join(f"{name} {_digest(folder / name)}\n" for name, *_ in stamps)
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def _digest(path: Path) -> str:
    """Of the content; a word in its place where it can't be read, and so not be loaded either."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"
