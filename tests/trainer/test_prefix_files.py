"""The files of kept rows: whole and of this text, or not read; bounded; and gone when they must."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.test_full_disk import as_root
from trainer.prefix_files import PrefixFiles, prefix_name

NAME = prefix_name("sha256:0", 22, {"threads": 4})
TOKENS = (5, 6, 7)
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
SIZE = 48 + ROWS.nbytes


def files_in(root: Path, name: str = NAME, **options: Any) -> PrefixFiles:
    return PrefixFiles(
        root, name, **{"limit_bytes": 1 << 20, "key": b"k" * 32, "left_free_bytes": 0} | options
    )


def names(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_file()} - {"lock"}


def test_what_is_kept_is_read_back_and_nobody_else_may(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    assert files.read(1, TOKENS, 4) is None
    files.keep({1: (TOKENS, ROWS), 2: ((8,), ROWS[:1])})
    for one in (files, files_in(tmp_path)):
        found = one.read(1, TOKENS, 4)
        assert found is not None
        assert found.tobytes() == ROWS.tobytes()
    assert files.report()["bytes"] == SIZE + 48 + 16
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_bit_that_turned_or_a_torn_end_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("prefix")
    files_in(root).keep({1: (TOKENS, ROWS)})
    path = root / NAME / "1-0.rows"
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans(), label="torn"):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    files = files_in(root)
    assert files.read(1, TOKENS, 4) is None
    assert not path.exists()
    assert files.report()["unreadable"] == 1
    files.keep({1: (TOKENS, ROWS)})
    assert files.read(1, TOKENS, 4) is not None


@pytest.mark.parametrize(
    ("example_id", "tokens", "width", "key"),
    [
        (1, (5, 6, 8), 4, b"k" * 32),
        (1, TOKENS, 4, b"l" * 32),
        (1, (5, 6), 6, b"k" * 32),
        (2, TOKENS, 4, b"k" * 32),
    ],
    ids=["other tokens", "another adapter's key", "another shape", "another example"],
)
def test_rows_of_something_else_are_not_read(
    tmp_path: Path, example_id: int, tokens: tuple[int, ...], width: int, key: bytes
) -> None:
    files_in(tmp_path).keep({1: (TOKENS, ROWS)})
    if example_id == 2:
        (tmp_path / NAME / "1-0.rows").rename(tmp_path / NAME / "2-0.rows")
    assert files_in(tmp_path, key=key).read(example_id, tokens, width) is None


def test_rows_of_another_base_or_engine_are_neither_read_nor_left(tmp_path: Path) -> None:
    files_in(tmp_path).keep({1: (TOKENS, ROWS)})
    content = (tmp_path / NAME / "1-0.rows").read_bytes()
    others = [
        prefix_name("sha256:1", 22, {"threads": 4}),
        prefix_name("sha256:0", 21, {"threads": 4}),
        prefix_name("sha256:0", 22, {"threads": 3}),
    ]
    assert len({NAME, *others}) == 4
    for other in others:
        files = files_in(tmp_path, other)
        assert names(tmp_path) == set()
        (tmp_path / other).mkdir()
        (tmp_path / other / "1-0.rows").write_bytes(content)
        files = files_in(tmp_path, other)
        assert files.read(1, TOKENS, 4) is None


def test_what_is_there_first_stays_and_the_rest_is_counted(tmp_path: Path) -> None:
    files = files_in(tmp_path, limit_bytes=2 * SIZE + 10)
    for one in (3, 1, 2, 4, 2):
        files.keep({one: (TOKENS, ROWS)})
    assert names(tmp_path) == {"3-0.rows", "1-0.rows"}
    assert files.report()["without_room"] == 2
    files.forget([3])
    files.keep({4: (TOKENS, ROWS)})
    assert names(tmp_path) == {"1-0.rows", "4-0.rows"}
    again = files_in(tmp_path, limit_bytes=SIZE)  # a bound that was lowered holds at once
    assert names(tmp_path) == {"1-0.rows"}
    assert again.report()["bytes"] == SIZE


def test_a_look_removes_what_is_not_at_hand_and_what_a_kill_left(tmp_path: Path) -> None:
    changed_at = {1: 10, 2: 20, 3: 30}
    files = files_in(tmp_path, changed_at=changed_at)
    files.keep(dict.fromkeys(changed_at, (TOKENS, ROWS)))
    (tmp_path / NAME / ".4-40.rows").write_bytes(b"half")
    changed_at[2] = 21  # corrected
    del changed_at[3]
    again = files_in(tmp_path, changed_at=changed_at)
    assert names(tmp_path) == {"1-10.rows"}
    assert again.read(2, TOKENS, 4) is None


def test_a_text_that_is_gone_is_not_kept(tmp_path: Path) -> None:
    there: Collection[int] = {1, 3}
    files = files_in(tmp_path, unchanged=lambda ids: [one for one in ids if one in there])
    files.keep(dict.fromkeys((1, 2, 3), (TOKENS, ROWS)))
    assert names(tmp_path) == {"1-0.rows", "3-0.rows"}


def test_who_holds_the_lock_is_waited_for_before_the_database_is_asked(tmp_path: Path) -> None:
    """The daemon removes files under it: none may be decided on before and written after."""
    files_in(tmp_path).keep({9: (TOKENS, ROWS)})
    there = {1}
    files = files_in(tmp_path, unchanged=lambda ids: [one for one in ids if one in there])
    descriptor = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    keeping = threading.Thread(target=lambda: files.keep({1: (TOKENS, ROWS)}))
    keeping.start()
    time.sleep(0.2)
    there.clear()
    os.close(descriptor)
    keeping.join(10)
    assert names(tmp_path) == {"9-0.rows"}


@pytest.mark.parametrize("trouble", ["no folder", "write", "little left"])
def test_a_disk_that_refuses_ends_the_keeping_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    root = tmp_path / "prefix"
    files = files_in(root, left_free_bytes=1 << 60 if trouble == "little left" else 0)
    if trouble == "no folder":
        root.write_bytes(b"")
    elif trouble == "write":
        files.keep({1: (TOKENS, ROWS)})

        def full(self: Path, target: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", full)
    for one in (2, 3):
        files.keep({one: (TOKENS, ROWS)})
    found = files.report()
    assert found["not_written_because"]
    if trouble == "write":
        assert names(root) == {"1-0.rows"}
        assert files.read(1, TOKENS, 4) is not None
    else:
        assert names(tmp_path) <= {"prefix"}


@as_root
def test_a_disk_that_is_really_full_keeps_what_is_whole(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(tmp_path)], check=True)
    try:
        files = files_in(tmp_path, left_free_bytes=-(1 << 30))  # until the disk itself refuses
        large = np.ones((500, 4), np.float32)  # 8 kilobytes
        made = {one: ([one] * 500, large * one) for one in range(1, 9)}
        files.keep(made)
        found = files.report()
        assert found["not_written_because"] == "No space left on device"
        assert 1 <= found["examples"] < 8
        assert len(names(tmp_path)) == found["examples"]
        again = files_in(tmp_path)
        read = {one: again.read(one, *made[one][:1], 4) for one in made}
        assert sum(rows is not None for rows in read.values()) == found["examples"]
        assert all((rows == one).all() for one, rows in read.items() if rows is not None)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_file_that_somebody_took_away_is_missed_once(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.keep({1: (TOKENS, ROWS)})
    (tmp_path / NAME / "1-0.rows").unlink()
    assert files.read(1, TOKENS, 4) is None
    assert files.report()["bytes"] == 0
    files.keep({1: (TOKENS, ROWS)})
    assert files.read(1, TOKENS, 4) is not None
