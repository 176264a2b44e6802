"""Whether the folder of a version is there, and whole."""

import hashlib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from sqlmodel import Session

from service.door import strict_json
from service.home import Home
from storage import versions
from storage.tables import Version

MANIFEST_NAME = "version.json"

_M = TypeVar("_M", bound=BaseModel)


class FilesError(Exception):
    """A version's files are gone or damaged; the message says which."""


def are_gone(home: Home, version: Version) -> bool:
    """Whether any file of the version is missing. Looks, and reads nothing."""
    folder = home.path / version.path
    names = [MANIFEST_NAME, *version.manifest.get("files", {})]
    return not all((folder / name).is_file() for name in names)


def active_to_beat(home: Home, session: Session, adapter_id: int) -> Version | None:
    """The adapter's active version, unless its files are gone: then nothing has to be better."""
    active = versions.active(session, adapter_id)
    return None if active is None or are_gone(home, active) else active


def read_manifest(folder: Path, kind: type[_M]) -> tuple[_M, dict[str, Any]]:
    """What the folder's version.json says: the part that is relied on, and all of it.

    Raises:
        FilesError: it is missing, or isn't such a manifest.
    """
    try:
        raw = strict_json.loads((folder / MANIFEST_NAME).read_bytes())
        return kind.model_validate(raw), raw
    except OSError as error:
        why = error.strerror
    except strict_json.JsonError as error:
        why = str(error)
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise FilesError(f"{MANIFEST_NAME}: {why}")


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
