"""What a verdict on an engine depends on: the device, its system, and the libraries that compute.

Another fingerprint is another device as far as the NPU is concerned: an update of the system or of
a library gives an engine that failed a new chance, and one that passed a new test.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import shutil
import subprocess

from npu.htp import soc_name

_DISTRIBUTIONS = ("onnxruntime", "onnxruntime-qnn", "torch", "lorad")
_GETPROP_SECONDS = 5


def fingerprint(soc: str | None = None) -> str:
    """`sha256:` and the hash of the facts; `soc` is the part that graphs are compiled for, if told.

    Loads nothing that computes: versions are read from what is installed, not from modules.
    """
    content = json.dumps(_facts(soc), sort_keys=True).encode()
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _facts(soc: str | None) -> dict[str, str | None]:
    return {
        "machine": platform.machine(),
        "soc": soc_name(),
        "compiled for": soc,
        "kernel": f"{platform.release()} {platform.version()}",
        "build": _android_build(),
        **{name: _version(name) for name in _DISTRIBUTIONS},
    }


def _android_build() -> str | None:
    """The name of the phone's system build; a vendor's libraries change without the kernel."""
    getprop = shutil.which("getprop")
    if getprop is None:
        return None
    try:
        asked = subprocess.run(
            [getprop, "ro.build.fingerprint"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GETPROP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.decode(errors="replace").strip() or None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
