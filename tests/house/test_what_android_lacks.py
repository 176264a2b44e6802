"""What Termux's Python and an app's corner of Android don't have is used nowhere in the rooms.

Python there says sys.platform "android" and is built for API level 24; an app has no /tmp, no
/dev/shm and no /etc/localtime, may make no hard links, and may not read /proc/stat or its like.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.house.repository import ROOMS, text_of, tracked_files

FUNCTIONS = {
    "hard links": {"os.link", "hardlink_to"},
    "extended attributes": {"os.getxattr", "os.setxattr", "os.listxattr", "os.removexattr"},
    "newer than API level 24": {
        "os.copy_file_range",
        "os.getloadavg",
        "os.getrandom",
        "os.memfd_create",
        "os.pidfd_open",
        "os.posix_spawn",
        "os.posix_spawnp",
    },
    "Android's name and release there, not the kernel's": {
        "platform.platform",
        "platform.release",
        "platform.system",
        "platform.uname",
    },
    "System V and named semaphores": {"multiprocessing"},
}
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/bin/", "/usr/", "/etc/")
FILES = ("/proc/stat", "/proc/uptime", "/proc/loadavg", "/proc/version", "/proc/net")
REASONS = {name: why for why, names in FUNCTIONS.items() for name in names}


def lacking(source: str) -> Iterator[str]:
    """What of the above a module's code uses; docstrings and comments may name it."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            names = [node.attr, f"{owner}.{node.attr}"]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.Compare):
            compared = ast.unparse(node)
            if "sys.platform" in compared and "android" not in compared:
                yield "sys.platform compared: it is 'android' in Termux"
        elif isinstance(node, ast.Constant) and id(node) not in prose:
            value = str(node.value)
            if value.startswith((*FOLDERS, *FILES)):
                yield f"{value}: not on a phone, or not for an app"
        yield from (f"{name}: {REASONS[name]}" for name in names if name in REASONS)


def test_no_room_uses_it() -> None:
    found = {
        str(path): uses
        for path in tracked_files()
        if path.parts[0] in ROOMS and path.suffix == ".py"
        if (uses := list(lacking(text_of(path))))
    }
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "import os; os.link(a, b)",
        "Path(a).hardlink_to(b)",
        "from os import posix_spawn",
        "import multiprocessing",
        "from multiprocessing import Pool",
        "here = platform.release()",
        "if sys.platform == 'linux': pass",
        "open('/proc/stat')",
        "folder = Path('/tmp/lorad')",
    ],
)
def test_the_search_finds_what_it_forbids(line: str) -> None:
    assert list(lacking(line))


def test_what_is_only_named_in_words_is_no_use() -> None:
    assert not list(lacking('"""os.link, /tmp"""\nimport os  # /tmp\nos.replace(a, b)'))
