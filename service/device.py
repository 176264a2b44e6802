"""What the device has room for, read from the system when asked."""

import shutil
from pathlib import Path

from api_schemas.device import Room

MEMORY = Path("/proc/meminfo")
_UNKNOWN = Room(free_bytes=None, total_bytes=None)


def storage(folder: Path) -> Room:
    """The room of the file system that holds the folder."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return _UNKNOWN
    return Room(free_bytes=usage.free, total_bytes=usage.total)


def memory(source: Path = MEMORY) -> Room:
    """The memory that can be had without swapping, as Linux estimates it."""
    try:
        lines = source.read_text().splitlines()
    except OSError:
        return _UNKNOWN
    kibibytes = {}
    for line in lines:
        name, _, rest = line.partition(":")
        number, _, unit = rest.strip().partition(" ")
        if unit == "kB" and number.isascii() and number.isdigit():
            kibibytes[name] = int(number) * 1024
    return Room(free_bytes=kibibytes.get("MemAvailable"), total_bytes=kibibytes.get("MemTotal"))


def database_bytes(database: Path) -> int:
    """The size of the database's file with its write-ahead log."""
    total = 0
    for name in (database.name, f"{database.name}-wal"):
        try:
            total += database.with_name(name).stat().st_size
        except FileNotFoundError:
            continue
    return total
