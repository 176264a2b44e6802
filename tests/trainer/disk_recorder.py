"""Records what this process does to a folder, for `tests.trainer.lossy_disk`.

It stands in for Python's ways to the file system. One that is not stood in for would be missed, so
whoever uses a record compares its `whole()` with the real folder (`tree`).
"""

# What stands in for the functions that pathlib itself calls can't call pathlib:
# ruff: noqa: PTH100, PTH115, PTH116, PTH118, PTH119, PTH120

from __future__ import annotations

import builtins
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.trainer.lossy_disk import ROOT, Operation, Record


class _Recorder:
    """Stands in for Python's ways to the file system and notes what goes below a folder."""

    def __init__(self, root: Path, before: Callable[[str], None]) -> None:
        self.root = os.path.realpath(root)
        self.before = before
        self.record = Record()
        self._real = {name: getattr(os, name) for name in _WRAPPED}
        self._inodes: dict[tuple[int, int], int] = {}
        self._number = ROOT
        self._snapshot(self.root)

    def _snapshot(self, folder: str) -> int:
        inode = self._register(os.stat(folder), ROOT if folder == self.root else None)
        names = self.record.folders.setdefault(inode, {})
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                names[entry.name] = self._snapshot(entry.path)
            elif entry.is_file(follow_symlinks=False):
                names[entry.name] = self._register(entry.stat())
                self.record.files[names[entry.name]] = Path(entry.path).read_bytes()
        return inode

    def _register(self, status: os.stat_result, number: int | None = None) -> int:
        if number is None:
            self._number += 1
            number = self._number
        self._inodes[status.st_dev, status.st_ino] = number
        return number

    def note(self, kind: str, inode: int, **more: Any) -> None:
        self.record.operations.append(Operation(kind, inode, **more))

    def inode_of(self, file: int | str) -> int | None:
        """The number of a file or folder, by descriptor or path, if it lies below the root."""
        try:
            status = os.stat(file)
        except OSError:
            return None
        return self._inodes.get((status.st_dev, status.st_ino))

    def place(self, path: Any, dir_fd: int | None) -> tuple[int, str] | None:
        """The folder and the name that a path means; None outside of the root."""
        text = os.fsdecode(path)
        if dir_fd is not None:
            text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
        text = os.path.join(
            os.path.realpath(os.path.dirname(os.path.abspath(text))), os.path.basename(text)
        )
        if not text.startswith(self.root + os.sep):
            return None
        parent = self.inode_of(os.path.dirname(text))
        if parent is None:
            assert not os.path.lexists(os.path.dirname(text)), f"a folder nobody made: {text}"
            return None  # the system will refuse it
        return parent, os.path.basename(text)

    def came(self, kind: str, place: tuple[int, str], path: Any, dir_fd: int | None) -> None:
        status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        self.note(kind, place[0], name=place[1], target=self._register(status))

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        writes = flags & (os.O_CREAT | os.O_TRUNC)
        place = self.place(path, dir_fd) if writes else None
        there = place is not None and _exists(path, dir_fd)
        if place is not None and not there:
            self.before("create")
        descriptor: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if place is not None and not there:
            self.came("create", place, path, dir_fd)
        elif place is not None and flags & os.O_TRUNC:
            self.note("truncate", self._known(descriptor))
        return descriptor

    def _known(self, file: int | str) -> int:
        inode = self.inode_of(file)
        assert inode is not None, f"a file that nobody made: {file}"
        return inode

    def write(self, descriptor: int, data: Any) -> int:
        inode = self.inode_of(descriptor)
        offset = 0 if inode is None else os.lseek(descriptor, 0, os.SEEK_CUR)
        if inode is not None:
            self.before("write")
        written: int = self._real["write"](descriptor, data)
        if inode is not None:
            self.note("write", inode, offset=offset, data=bytes(data)[:written])
        return written

    def fsync(self, file: Any) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        inode = self.inode_of(descriptor)
        if inode is not None:
            self.before("fsync")
        self._real["fsync"](descriptor)
        if inode is not None:
            self.note("fsync", inode)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        place = self.place(path, dir_fd)
        if place is not None and not _exists(path, dir_fd):
            self.before("mkdir")
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        if place is not None:
            self.came("mkdir", place, path, dir_fd)

    def rename(
        self, a: Any, b: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        before, after = self.place(a, src_dir_fd), self.place(b, dst_dir_fd)
        if before is not None:
            self.before("rename")
        self._real["rename"](a, b, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        assert (before is None) == (after is None), "a rename over the recorded folder's border"
        if before is not None and after is not None:
            self.note(
                "rename",
                before[0],
                name=before[1],
                target=after[0],
                new_name=after[1],
                offset=self._known(os.fsdecode(b)),
            )

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        place = self.place(path, dir_fd)
        self._real["unlink"](path, dir_fd=dir_fd)
        if place is not None:
            self.note("unlink", place[0], name=place[1])

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        place = self.place(path, dir_fd)
        self._real["rmdir"](path, dir_fd=dir_fd)
        if place is not None:
            self.note("unlink", place[0], name=place[1])

    def stand_ins(self) -> dict[str, Callable[..., Any]]:
        return {
            "open": self.open,
            "write": self.write,
            "fsync": self.fsync,
            "fdatasync": self.fsync,
            "mkdir": self.mkdir,
            "rename": self.rename,
            "replace": self.rename,
            "unlink": self.unlink,
            "remove": self.unlink,
            "rmdir": self.rmdir,
        }

    def open_file(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """`io.open`, with every write that reaches the file noted, and only those."""
        ours = (
            self.inode_of(file) is not None
            if isinstance(file, int)
            else self.place(file, None) is not None
        )
        if not ours or not set(mode) & set("wax+"):
            return _io_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _RecordedFile(self, file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if "b" in mode and buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffered = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)


class _RecordedFile(io.FileIO):
    def __init__(self, recorder: _Recorder, file: Any, mode: str, closefd: bool, opener: Any):
        place = None if isinstance(file, int) else recorder.place(file, None)
        there = place is None or _exists(file, None)
        if not there:
            recorder.before("create")
        super().__init__(file, mode, closefd, opener)
        self._recorder = recorder
        if place is not None and not there:
            recorder.came("create", place, file, None)
        elif "w" in mode and place is not None:
            recorder.note("truncate", recorder._known(self.fileno()))

    def write(self, data: Any) -> int:
        appends = "a" in self.mode
        offset = os.fstat(self.fileno()).st_size if appends else self.tell()
        self._recorder.before("write")
        written = super().write(data)
        inode = self._recorder._known(self.fileno())
        self._recorder.note("write", inode, offset=offset, data=bytes(data)[:written])
        return written

    def truncate(self, size: int | None = None) -> int:
        length = super().truncate(size)
        self._recorder.note("truncate", self._recorder._known(self.fileno()), offset=length)
        return length


def _exists(path: Any, dir_fd: int | None) -> bool:
    try:
        return stat.S_IFMT(os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode) != 0
    except FileNotFoundError:
        return False


_WRAPPED = (
    *("open", "write", "fsync", "fdatasync"),
    *("mkdir", "rename", "replace", "unlink", "remove", "rmdir"),
)
_io_open = io.open


@contextmanager
def recorded(root: Path, before: Callable[[str], None] = lambda kind: None) -> Iterator[Record]:
    """Record what this process does below a folder, which is taken to be on the disk as it is.

    `before` is called before each write, fsync, creation and rename with its kind, and may raise
    what the system would.
    """
    recorder = _Recorder(root, before)
    real = recorder._real
    for name, stand_in in recorder.stand_ins().items():
        setattr(os, name, stand_in)
    io.open = builtins.open = recorder.open_file  # type: ignore[assignment]
    try:
        yield recorder.record
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        io.open = builtins.open = _io_open
