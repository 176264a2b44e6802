"""Where a process looks for Qualcomm's libraries and for the phone's own beside them.

Which folders, in which order, differs from phone to phone: one needs /vendor/lib64 for
libcdsprpc.so, on another a session can't be opened once it is named. The dynamic loader reads
LD_LIBRARY_PATH (colons) when a process begins, FastRPC reads ADSP_LIBRARY_PATH (semicolons): so
they are set for a child, before it is executed, and never in the process that starts it. What the
user had set is kept, after ours, and remembered, so that the children of such a child can be given
another path, or none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWN_VARIABLE = "LORAD_OWN_LIBRARY_PATHS"
"""JSON: the variables of SEPARATORS as they were before ours, null where one wasn't set."""

SEPARATORS = {"LD_LIBRARY_PATH": ":", "ADSP_LIBRARY_PATH": ";", "DSP_LIBRARY_PATH": ";"}

_VENDOR, _SYSTEM = "/vendor/lib64", "/system/lib64"


@dataclass(frozen=True)
class LibraryPath:
    """One of the ways; `service/library_path.py` reads what is kept of it."""

    name: str
    loader: tuple[str, ...]
    """Folders for the dynamic loader, the first wins."""
    dsp: tuple[str, ...]
    """Folders for FastRPC, which loads the DSP's own half of QNN."""

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with this path before what the user has set, whatever path `base` already had."""
        own = own_environment(base)
        wanted = {"LD_LIBRARY_PATH": self.loader, "ADSP_LIBRARY_PATH": self.dsp}
        if own.get("DSP_LIBRARY_PATH"):  # FastRPC takes it instead of ADSP_LIBRARY_PATH
            wanted["DSP_LIBRARY_PATH"] = self.dsp
        paths = {
            variable: _joined(folders, own.get(variable, ""), SEPARATORS[variable])
            for variable, folders in wanted.items()
        }
        before = {variable: own.get(variable) for variable in SEPARATORS}
        return own | paths | {OWN_VARIABLE: json.dumps(before)}

    def is_that_of(self, environment: Mapping[str, str]) -> bool:
        """Whether a process with this environment was started with this path."""
        wanted = self.environment(environment)
        return all(environment.get(name) == wanted.get(name) for name in SEPARATORS)

    def to_json(self) -> dict[str, Any]:
        """JSON-able."""
        return {"name": self.name, "loader": list(self.loader), "dsp": list(self.dsp)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> LibraryPath:
        """The one that `to_json` told. Raises KeyError or TypeError."""
        loader, dsp = ([str(folder) for folder in content[name]] for name in ("loader", "dsp"))
        return cls(str(content["name"]), tuple(loader), tuple(dsp))


def library_paths(folder: Path) -> tuple[LibraryPath, ...]:
    """The ways to libraries in `folder`, in the order in which they are tried.

    In Termux its own lib follows `folder`: the libraries in there have no RUNPATH that leads to its
    C++ library, and where the system's folders are named as well, Termux's programs must find their
    own OpenSSL and SQLite first.
    """
    own = (str(folder), *([f"{sys.base_prefix}/lib"] if sys.platform == "android" else []))
    ways = {
        "libraries": own,
        "libraries, vendor": (*own, _VENDOR),
        "libraries, system, vendor": (*own, _SYSTEM, _VENDOR),
        "vendor, libraries": (_VENDOR, *own),
    }
    return tuple(LibraryPath(name, loader, (str(folder),)) for name, loader in ways.items())


def own_environment(base: Mapping[str, str]) -> dict[str, str]:
    """`base` as the user had set it: without any of our paths, for the system's own programs."""
    own = dict(base)
    try:
        before = json.loads(own.pop(OWN_VARIABLE))
    except (KeyError, ValueError):
        return own
    for variable in SEPARATORS if isinstance(before, dict) else ():
        value = before.get(variable)
        if isinstance(value, str):
            own[variable] = value
        else:
            own.pop(variable, None)
    return own


def _joined(folders: tuple[str, ...], own: str, separator: str) -> str:
    parts = dict.fromkeys([*folders, *(part for part in own.split(separator) if part)])
    return separator.join(parts)
