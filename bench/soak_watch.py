"""What a daemon holds when nothing goes on: memory, descriptors, threads, children, disk, rows."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from bench.soak_phone import SoakPhone

Figures = dict[str, float]
"""Each by its name, whose part before the first dot is its kind; sizes in bytes."""

_STILL_LOOKS = 8


def look_at_rest(phone: SoakPhone) -> Figures:
    """The figures, once no child is left, nothing is to be erased and nothing changes any more."""
    phone.wait("no child is left", lambda: not phone.children())
    phone.wait("all is erased", lambda: not _pending_erasures(phone))
    still: list[Figures] = []

    def is_still() -> bool:
        still.append(_held(phone.daemon.pid))
        return len(still) >= _STILL_LOOKS and all(one == still[-1] for one in still[-_STILL_LOOKS:])

    phone.wait("descriptors and threads stay the same", is_still)
    found = still[-1] | _memory(phone.daemon.pid) | _disk(phone.home) | _rows(phone.home)
    found["temporary"] = len(list(phone.tmp.iterdir()))
    log = phone.daemon.log.read_bytes()
    found["log.bytes"], found["log.lines"] = len(log), log.count(b"\n")
    return found


def _held(pid: int) -> Figures:
    found: Figures = {"threads": 0, "children": 0, "zombies": 0}
    for task in Path(f"/proc/{pid}/task").iterdir():
        found["threads"] += 1
        for child in (task / "children").read_text().split():
            found["children"] += 1
            found["zombies"] += "Z (zombie)" in Path(f"/proc/{child}/status").read_text()
    kinds = Counter(_kind(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    found |= {f"descriptors.{kind}": count for kind, count in sorted(kinds.items())}
    return found | {"descriptors": kinds.total()}


def _kind(descriptor: Path) -> str:
    try:
        target = str(descriptor.readlink())
    except FileNotFoundError:
        return "gone"
    if target.startswith("/"):
        return Path(target.removesuffix(" (deleted)")).name
    return target.partition(":")[0].strip("[]")


def _memory(pid: int) -> Figures:
    """What it has written to itself, wherever that is now, and what is told of it besides.

    Rss and Pss count pages of libraries too: of these the system drops some, and one's part of them
    grows whenever another process that has them loaded ends.
    """
    told: Figures = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        told[name] = int(rest.split()[0]) * 1024
    own = told["Private_Dirty"] + told["Swap"]
    return {"memory.own": own, "resident.pss": told["Pss"], "resident.rss": told["Rss"]}


def _disk(home: Path) -> Figures:
    found: Counter[str] = Counter()
    for folder, _, names in os.walk(home):
        place = Path(folder).relative_to(home)
        for name in names:
            part = place.parts[0] if place.parts else _of_the_home(name)
            if part == "adapters" and "prefix" in place.parts:
                part = "prefix"
            found[f"disk.{part}"] += (Path(folder) / name).lstat().st_size
            found[f"files.{part}"] += 1
    return dict(found)


def _of_the_home(name: str) -> str:
    known = {"lorad.db": "database", "lorad.db-wal": "wal", "predictor.log": "predictor.log"}
    return known.get(name, "other")


def _rows(home: Path) -> Figures:
    with closing(sqlite3.connect(f"file:{home / 'lorad.db'}?mode=ro", uri=True)) as database:
        names = database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        return {
            f"rows.{name}": database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for (name,) in names
        }


def _pending_erasures(phone: SoakPhone) -> bool:
    with closing(sqlite3.connect(f"file:{phone.home / 'lorad.db'}?mode=ro", uri=True)) as database:
        query = "SELECT count(*) FROM erasures WHERE erased_at IS NULL"
        return bool(database.execute(query).fetchone()[0])
