"""Where a process that computes is to look for the NPU's libraries: part of its environment.

What is looked for in which order was found out by `npu/library_search.py` and is kept with the
doctor's verdict. A loader reads it when a process begins, so it is set for a child, and the
daemon's own environment stays as it is: /vendor/lib64 in it would break other programs.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from service.engine_files import EngineFiles, LibraryPath
from service.home import Home
from service.settings import Settings

LIBRARIES_VARIABLE = "LORAD_QNN_LIBRARIES"
OWN_VARIABLE = "LORAD_OWN_LIBRARY_PATHS"
"""For the child's own children: what the user had set; read by `npu/library_path.py`."""

_SEPARATORS = {"LD_LIBRARY_PATH": ":", "ADSP_LIBRARY_PATH": ";", "DSP_LIBRARY_PATH": ";"}


def libraries_folder(settings: Settings, home: Home) -> Path | None:
    """The folder of the user's own Qualcomm libraries; None if there is none."""
    named = settings.qnn_libraries
    folder = Path(named).expanduser().absolute() if named else home.qnn_libraries
    return folder if folder.is_dir() else None


def doctor_environment(settings: Settings, home: Home) -> dict[str, str]:
    """For the doctor, which tries the ways itself."""
    folder = libraries_folder(settings, home)
    return os.environ | ({} if folder is None else {LIBRARIES_VARIABLE: str(folder)})


def computing_environment(settings: Settings, home: Home) -> dict[str, str]:
    """For a process that may open the NPU's engine."""
    environment = doctor_environment(settings, home)
    folder = libraries_folder(settings, home)
    verdict = None if folder is None else EngineFiles(home.engine).verdict()
    path = None if verdict is None else verdict.library_path
    if path is None or str(folder) not in path.loader:
        return environment
    return environment | with_path(path, environment)


def with_path(path: LibraryPath, own: Mapping[str, str]) -> dict[str, str]:
    """The variables that lead to the libraries, before what the user has set in ``own``."""
    wanted = {"LD_LIBRARY_PATH": path.loader, "ADSP_LIBRARY_PATH": path.dsp}
    if own.get("DSP_LIBRARY_PATH"):  # FastRPC takes it instead of ADSP_LIBRARY_PATH
        wanted["DSP_LIBRARY_PATH"] = path.dsp
    before = {variable: own.get(variable) for variable in _SEPARATORS}
    return {
        OWN_VARIABLE: json.dumps(before),
        **{name: _joined(folders, before[name], name) for name, folders in wanted.items()},
    }


def _joined(folders: tuple[str, ...], own: str | None, variable: str) -> str:
    separator = _SEPARATORS[variable]
    kept = [part for part in (own or "").split(separator) if part]
    return separator.join(dict.fromkeys([*folders, *kept]))
