"""Loaded by every Python of a test at its start: hides onnxruntime-qnn, moves /vendor/lib64."""

import importlib.machinery
import os
from typing import Any

import npu.library_path

_find = importlib.machinery.PathFinder.find_spec


def _find_other(name: str, *arguments: Any) -> Any:
    return None if name == "onnxruntime_qnn" else _find(name, *arguments)


importlib.machinery.PathFinder.find_spec = _find_other  # type: ignore[method-assign]
npu.library_path._VENDOR = os.environ["STANDS_FOR_VENDOR"]
