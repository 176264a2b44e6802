"""What lorad has set up on the phone and not taken back yet, on the disk: it outlives the daemon.

A daemon that was killed finds here what to take back. A restart of the phone takes everything back
by itself, so what was written before one counts for nothing.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from service.durable import write_durably

Kind = Literal["training", "paused"]
"""What a notification says that has to be removed or replaced one day."""


@dataclass(frozen=True)
class Things:
    """``wake_lock``: it was asked for, and perhaps taken. ``notification``: what is shown."""

    wake_lock: bool = False
    notification: Kind | None = None


class LeftBehind:
    """The file of it. For one thread at a time."""

    def __init__(self, path: Path, boot: str | None) -> None:
        """Read what is there. ``boot`` names this start of the phone; None: nobody knows."""
        self._path = path
        self._boot = boot
        self.things = self._read()

    def change(self, **changes: Any) -> None:
        """Write down what is different; it is on the disk once this returns.

        Raises:
            OSError: it can't be written, and `things` is what it was.
        """
        things = replace(self.things, **changes)
        if things == self.things:
            return
        if things == Things():
            self._path.unlink(missing_ok=True)
        else:
            told = {"boot": self._boot} | asdict(things)
            write_durably(self._path, json.dumps(told).encode())
        self.things = things

    def _read(self) -> Things:
        try:
            told = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return Things()
        if not isinstance(told, dict) or self._boot is None or told.get("boot") != self._boot:
            return Things()
        shown = told.get("notification")
        return Things(told.get("wake_lock") is True, shown if shown in get_args(Kind) else None)
