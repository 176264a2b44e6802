"""Logs of children stay short, whatever a child prints, and while it prints."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.child_logs import KEPT_BYTES, MOST_BYTES, shorten, shorten_all
from service.child_process import ChildProcess
from service.eraser import Eraser
from service.home import Home
from service.runs.run_feed import RunFeed
from service.runs.supervisor import Supervisor
from service.settings import Settings
from storage.database import Database
from tests.service.choosers import OldestFirst
from tests.service.daemon import until

LINE = b"%015d\n"


def lines(count: int) -> bytes:
    return b"".join(LINE % number for number in range(count))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home.at(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def writer(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A child that has written too much to log, and writes what it is told to."""
    program = "import sys\nfor line in sys.stdin: sys.stderr.write(line); sys.stderr.flush()"
    with (tmp_path / "log").open("ab") as log:
        log.write(lines(MOST_BYTES // 16 + 1))
        log.flush()
        child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=log)
    yield child
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(20) == 0


def test_a_log_that_is_not_too_long_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    shorten(path)
    assert not path.exists()
    path.write_bytes(lines(MOST_BYTES // 16))
    shorten(path)
    assert path.read_bytes() == lines(MOST_BYTES // 16)


def test_the_newest_lines_stay_and_what_a_child_writes_next_follows_them(
    tmp_path: Path, writer: "subprocess.Popen[bytes]"
) -> None:
    path = tmp_path / "log"
    shorten(path)
    kept = path.read_bytes()
    assert KEPT_BYTES - 16 <= len(kept) <= KEPT_BYTES
    assert lines(MOST_BYTES // 16 + 1).endswith(kept)
    assert len(kept) % 16 == 0, "it begins with a whole line"
    assert writer.stdin is not None
    writer.stdin.write(b"more\n")
    writer.stdin.flush()
    until(lambda: path.read_bytes() == kept + b"more\n")


def test_one_endless_line_is_cut_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (MOST_BYTES + 1))
    shorten(path)
    assert path.read_bytes() == b"x" * KEPT_BYTES


def test_a_child_begins_with_a_short_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(lines(MOST_BYTES // 16 + 1))
    child = ChildProcess("child", "this", [], path, os.environ)
    assert child.wait(20) == 0
    child.close()
    assert path.stat().st_size < KEPT_BYTES + 10_000


def test_the_eraser_shortens_the_logs_of_all_children(home: Home) -> None:
    home.run(7).mkdir()
    paths = [home.worker_log(7), home.predictor_log]
    for path in paths:
        path.write_bytes(lines(MOST_BYTES // 16 + 1))
    settings = Settings(home=home.path)
    with Database(home.database) as database:
        supervisor = Supervisor(settings, home, database, RunFeed(), OldestFirst())
        eraser = Eraser(home, database, supervisor)
        eraser.start()
        try:
            until(lambda: all(path.stat().st_size <= KEPT_BYTES for path in paths))
        finally:
            eraser.stop()


def test_one_that_resists_keeps_no_other_from_being_shortened(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    home.predictor_log.symlink_to(home.path / "elsewhere")
    home.run(7).mkdir()
    home.worker_log(7).write_bytes(lines(MOST_BYTES // 16 + 1))
    shorten_all(home)
    assert home.worker_log(7).stat().st_size <= KEPT_BYTES
    [record] = caplog.records
    assert record.getMessage().startswith("predictor.log can't be shortened")
