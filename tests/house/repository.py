"""Where the repository lies and what is committed in it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("service", "trainer", "npu", "storage", "api_schemas")


def tracked_files() -> list[Path]:
    """Every committed file, relative to ROOT; works as root in another user's clone, too."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(name) for name in listing.stdout.split("\0") if (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    """The file's text, with bytes that are no UTF-8 replaced."""
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")
