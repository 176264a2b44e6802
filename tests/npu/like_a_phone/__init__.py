"""A phone's circumstances in real processes: no package onnxruntime-qnn, a folder of libraries.

The libraries are the emulator's. One that they need lies elsewhere, in a folder that stands for
/vendor/lib64, as libcdsprpc.so does on a phone: with LD_LIBRARY_PATH without that folder nothing
can be computed, and with it all can.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

_NEEDED = ("libonnxruntime_providers_qnn.so", "libQnnHtp.so", "libQnnSystem.so")


def like_a_phone(folder: Path) -> dict[str, str]:
    """Make `folder`/qnn and `folder`/vendor; PYTHONPATH and more for the `sitecustomize` here."""
    libraries, vendor = folder / "qnn", folder / "vendor"
    spec = importlib.util.find_spec("onnxruntime_qnn")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for place, files in (
        (libraries, [package / name for name in _NEEDED]),
        (vendor, [*package.with_name("onnxruntime_qnn.libs").glob("*.so*")]),
    ):
        place.mkdir(parents=True)
        for file in files:
            _link(file, place / file.name)
    here = Path(__file__).parent
    return {
        "PYTHONPATH": f"{here}:{here.parents[2]}",
        "STANDS_FOR_VENDOR": str(vendor),
        "LORAD_QNN_LIBRARIES": str(libraries),
    }


def _link(file: Path, place: Path) -> None:
    """A second name for the file; a symbolic link would lead the loader to where it lies."""
    try:
        os.link(file, place)
    except OSError:  # another disk
        shutil.copy(file, place)
