"""Whether the folder of a version is there, and whole."""

import hashlib
from pathlib import Path

from service.home import Home
from storage.tables import Version

MANIFEST_NAME = "version.json"


class FilesError(Exception):
    """A version's files are gone or damaged; the message says which."""


def are_gone(home: Home, version: Version) -> bool:
    """Whether any file of the version is missing. Looks, and reads nothing."""
    folder = home.path / version.path
    names = [MANIFEST_NAME, *version.manifest.get("files", {})]
    return not all((folder / name).is_file() for name in names)


def check_whole(folder: Path, files: dict[str, str]) -> None:
    """Read every file of the folder and compare it with its SHA-256 in ``files``.

    Raises:
        FilesError: one is missing, is another one, or would lie outside of the folder.
    """
    for name, expected in files.items():
        if Path(name).name != name:
            raise FilesError("its manifest lists a file outside of it")
        try:
            with (folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise FilesError(f"{name}: {error.strerror}") from None
        if found != expected:
            raise FilesError(f"{name} has SHA-256 {found}, expected {expected}")
