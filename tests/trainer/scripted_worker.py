"""The real worker, to which things happen at exact moments: `SCRIPT --home HOME --run ID`.

SCRIPT is a JSON list of objects: `{"at": {fields of an event}, "do": what, "ids": [example ids]}`.
They happen in this order, each once, right after the worker has said such an event and before it
goes on:

- `delete`: the examples go, and the daemon's notice arrives on standard input;
- `delete quietly`: they go and no notice comes;
- `expire`, `revive`: only their shells are left; they are sent again with another text;
- `truncate`: assert that no reader keeps the write-ahead log from being truncated;
- `lose database`: lorad.db can't be opened from here on;
- `copy checkpoints`: into the folder `kept` of the run's folder;
- `fill disk`: nothing is left on the home's file system but so many kilobytes as `ids` says;
- `kill when it keeps`: SIGKILL before so many files of kept rows, as `ids` says, have their names;
- `kill`, `terminate`: SIGKILL or SIGTERM to this process.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.trainer.workers import delete, expire, send_again
from trainer import worker


def fill_disk(filler: Path, free_kilobytes: int) -> None:
    """A file that leaves so much of a tmpfs, which gives room by pages of 4 kilobytes."""
    with filler.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        file.truncate(max(0, file.tell() - 1024 * free_kilobytes))


def kill_when_it_keeps(number: int) -> None:
    """At the rename of the file of kept rows with that number, counted from 1."""
    replace, renamed = Path.replace, itertools.count(1)

    def replace_or_die(self: Path, target: Path) -> Path:
        if target.suffix == ".rows" and next(renamed) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    Path.replace = replace_or_die  # type: ignore[method-assign,assignment]


class Script:
    """What is still to happen."""

    def __init__(self, steps: list[dict[str, Any]], home: Path) -> None:
        self._steps = steps
        self._home = home
        reading, self._notices = os.pipe()
        os.dup2(reading, 0)
        self.requests: worker.Requests | None = None

    def after(self, event: str, fields: Mapping[str, Any]) -> None:
        said = {"event": event, **fields}
        while self._steps and self._steps[0]["at"].items() <= said.items():
            step = self._steps.pop(0)
            self._do(step["do"], step.get("ids", []))

    def _do(self, what: str, ids: list[int]) -> None:
        if what in ("delete", "delete quietly"):
            delete(self._home, *ids)
        elif what == "expire":
            expire(self._home, *ids)
        elif what == "revive":
            for one in ids:
                send_again(self._home, one, "another text")
        elif what == "truncate":
            with sqlite3.connect(self._home / "lorad.db", isolation_level=None) as connection:
                connection.execute("UPDATE adapters SET revision = revision + 1")
                busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            connection.close()
            assert busy == 0, "a reader holds the log"
        elif what == "copy checkpoints":
            run = self._home / "runs" / sys.argv[sys.argv.index("--run") + 1]
            shutil.copytree(run / "checkpoints", run / "kept")
        elif what == "fill disk":
            fill_disk(self._home / "filler", *ids)
        elif what == "kill when it keeps":
            kill_when_it_keeps(*ids)
        elif what == "lose database":
            (self._home / "lorad.db").rename(self._home / "away.db")
        else:
            number = signal.SIGKILL if what == "kill" else signal.SIGTERM
            os.kill(os.getpid(), number)
        if what in ("delete", "expire", "lose database"):
            self._notify()

    def _notify(self) -> None:
        os.write(self._notices, b"examples\n")
        requests = self.requests
        while requests is not None and not requests._changed.is_set():
            time.sleep(0.001)


def main() -> None:
    script = Script(json.loads(sys.argv.pop(1)), Path(sys.argv[sys.argv.index("--home") + 1]))
    emit, listen = worker.Protocol.emit, worker.Requests.__init__

    def emit_and_act(self: worker.Protocol, event: str, fields: Mapping[str, Any]) -> None:
        emit(self, event, fields)
        script.after(event, fields)

    def listen_and_tell(self: worker.Requests, protocol: worker.Protocol) -> None:
        listen(self, protocol)
        script.requests = self

    worker.Protocol.emit = emit_and_act  # type: ignore[method-assign]
    worker.Requests.__init__ = listen_and_tell  # type: ignore[method-assign]
    worker.main()


if __name__ == "__main__":
    main()
