"""What a power cut leaves of a folder: only what was fsynced is sure, the rest is anyone's guess.

A SIGKILL loses nothing that a process has written, so it proves nothing about fsync. Here every
write, truncation, creation, rename and removal below a folder is recorded in the process that does
it, with its fsyncs, and any disk that a power cut may leave is then made from the record:

- a file's bytes are sure once the file was fsynced, a name once its folder was, and only then;
- whatever isn't sure may be there or not, in any combination; a write may also be torn, or have
  given the file its length but not its bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Tree = dict[str, bytes | None]
"""Paths below the folder with a file's bytes, or None for a folder."""
ROOT = 0
_TORN = ("kept", "lost", "torn", "zeros")


@dataclass(frozen=True)
class Operation:
    """One change, fsync or mark; inodes are numbers, ROOT is the recorded folder."""

    kind: str
    """create, mkdir, rename, unlink, write, truncate, fsync or mark."""
    inode: int = ROOT
    """The file that changed or was fsynced; of a name, the folder it is in."""
    name: str = ""
    """The name that came or went; of a mark, what it says."""
    target: int = ROOT
    """What got the name; of a rename the folder moved to."""
    new_name: str = ""
    offset: int = 0
    """Where the bytes go; of a truncation, the new length."""
    data: bytes = b""


@dataclass
class Record:
    """The folder as it was, and all that happened to it since."""

    folders: dict[int, dict[str, int]] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)

    def mark(self, what: str) -> None:
        """Note that something was said to the world at this point."""
        self.operations.append(Operation("mark", name=what))

    def marks(self, end: int) -> list[str]:
        """What was said before operation `end`."""
        return [one.name for one in self.operations[:end] if one.kind == "mark"]

    def whole(self, end: int | None = None) -> Tree:
        """Everything that happened before operation `end`: what a SIGKILL there leaves."""
        end = len(self.operations) if end is None else end
        return self._tree(dict.fromkeys(range(end), "kept"))

    def sure(self, end: int) -> Tree:
        """Only what was fsynced before operation `end`."""
        return self._tree(dict.fromkeys(self._synced(end), "kept"))

    def guess(self, end: int, chance: random.Random) -> Tree:
        """One of the many disks that a power cut before operation `end` may leave."""
        synced = self._synced(end)
        likely = chance.choice((0.1, 0.5, 0.9))
        fate = {}
        for place in range(end):
            if place in synced or chance.random() < likely:
                fate[place] = "kept"
            elif self.operations[place].kind == "write":
                fate[place] = chance.choice(_TORN[1:])
            else:
                fate[place] = "lost"
        return self._tree(fate)

    def disks(self, end: int, chance: random.Random, guesses: int) -> Iterator[Tree]:
        """What is sure, what a SIGKILL leaves, the last write torn, and some guesses."""
        yield self.sure(end)
        yield self.whole(end)
        if end and self.operations[end - 1].kind == "write":
            fate = dict.fromkeys(range(end), "kept")
            yield self._tree(fate | {end - 1: "torn"})
            yield self._tree(fate | {end - 1: "zeros"})
        for _ in range(guesses):
            yield self.guess(end, chance)

    def _synced(self, end: int) -> set[int]:
        """The places of the changes before `end` that an fsync before `end` made sure."""
        synced: set[int] = set()
        covered: set[int] = set()  # inodes that are fsynced later, but before `end`
        for place in reversed(range(end)):
            one = self.operations[place]
            if one.kind == "fsync":
                covered.add(one.inode)
            elif one.kind == "rename":
                if one.inode in covered and one.target in covered:
                    synced.add(place)
            elif one.inode in covered:
                synced.add(place)
        return synced

    def _tree(self, fate: Mapping[int, str]) -> Tree:
        folders = {inode: dict(names) for inode, names in self.folders.items()}
        files = {inode: bytearray(data) for inode, data in self.files.items()}
        for place in sorted(fate):
            if fate[place] != "lost":
                _apply(self.operations[place], fate[place], folders, files)
        # What exists has its contents, also where it got its first name only by a rename.
        tree: Tree = {}

        def walk(inode: int, path: str) -> None:
            for name, inner in sorted(folders.get(inode, {}).items()):
                below = f"{path}{name}"
                if inner in files:
                    tree[below] = bytes(files[inner])
                else:
                    tree[below] = None
                    walk(inner, f"{below}/")

        for one in self.operations:
            if one.kind == "create":
                files.setdefault(one.target, bytearray())
        walk(ROOT, "")
        return tree


def _apply(
    one: Operation,
    fate: str,
    folders: dict[int, dict[str, int]],
    files: dict[int, bytearray],
) -> None:
    names = folders.setdefault(one.inode, {}) if one.kind not in ("write", "truncate") else {}
    if one.kind in ("create", "mkdir"):
        names[one.name] = one.target
    elif one.kind == "unlink":
        names.pop(one.name, None)
    elif one.kind == "rename":
        names.pop(one.name, None)
        folders.setdefault(one.target, {})[one.new_name] = one.offset
    elif one.kind in ("write", "truncate"):
        data = files.setdefault(one.inode, bytearray())
        if one.kind == "truncate":
            del data[one.offset :]
            data.extend(bytes(one.offset - len(data)))
            return
        written = one.data
        if fate == "torn":
            written = written[: len(written) // 2]
        elif fate == "zeros":
            written = bytes(len(written))
        data.extend(bytes(max(0, one.offset - len(data))))
        data[one.offset : one.offset + len(written)] = written


def tree(folder: Path) -> Tree:
    """The real folder."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def put(tree: Tree, folder: Path) -> None:
    """Make a disk real: `folder` holds this tree, and nothing else."""
    folder.mkdir(parents=True)
    for path, data in tree.items():
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)
