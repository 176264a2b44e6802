"""What the buttons of the notification do: commands of `lorad`, for a shell that knows nothing.

Android has them run by `dash -c` without PATH, and nothing says what else it lets them know. So the
command names its program from the root, and sets what the program and its launcher need.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

_TOLD = ("PREFIX", "HOME", "PATH")


def button_command(
    home: Path, *arguments: str, environment: Mapping[str, str] = os.environ
) -> str | None:
    """`lorad` with these arguments for the daemon of ``home``; None where there is no such program.

    The launcher in $PREFIX/bin, or else the program of the Python that runs this.
    """
    places = [Path(sys.executable).with_name("lorad")]
    if prefix := environment.get("PREFIX"):
        places.insert(0, Path(prefix) / "bin/lorad")
    program = next((place for place in places if os.access(place, os.X_OK)), None)
    if program is None:
        return None
    told = [f"{name}={shlex.quote(environment[name])}" for name in _TOLD if name in environment]
    words = [str(program), *arguments, "--home", str(home)]
    return " ".join([*told, shlex.join(words)])
