"""What a verdict on an engine depends on: the device, its system, and the libraries that compute.

Another fingerprint is another device as far as the NPU is concerned: an update of the system or of
a library gives an engine that failed a new chance, and one that passed a new test.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil

from npu.htp import soc_name
from npu.qnn_libraries import user_libraries
from npu.system_program import program_output

_DISTRIBUTIONS = ("onnxruntime", "onnxruntime-qnn", "torch", "lorad")
_GETPROP_SECONDS = 5


def fingerprint(soc: str | None = None) -> str:
    """`sha256:` and the hash of the facts; `soc` is the part that graphs are compiled for, if told.

    Loads nothing that computes: versions are read from what is installed, not from modules.
    """
    content = json.dumps(_facts(soc), sort_keys=True).encode()
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _facts(soc: str | None) -> dict[str, str | None]:
    libraries = user_libraries()
    return {
        "machine": platform.machine(),
        "soc": soc_name(),
        "compiled for": soc,
        "kernel": f"{os.uname().release} {os.uname().version}",  # platform's is Android's release
        "build": _android_build(),
        "libraries": None if libraries is None else libraries.identity,
        **{name: _version(name) for name in _DISTRIBUTIONS},
    }


def _android_build() -> str | None:
    """The name of the phone's system build; a vendor's libraries change without the kernel."""
    getprop = shutil.which("getprop")
    if getprop is None:
        return None
    return program_output([getprop, "ro.build.fingerprint"], _GETPROP_SECONDS).strip() or None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
