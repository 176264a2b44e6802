"""What a backup holds: a tar file of the names below, with a list of them at its beginning.

    manifest.json       this list: sizes, hashes, the schema's number
    lorad.db            the database
    adapters/3/versions/run-00000007/…    the files of each version
    runs/8/spec.json    of each unfinished run, which begins again
    models/NAME/…       of each base model the manifest, with --with-models all of it
    token, server_key   with --with-keys only
    manifest.sha256     the hash of manifest.json: where it is missing, the file was cut

No name but these is ever written or read, so none can lead out of the home.
"""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MANIFEST = "manifest.json"
SEAL = "manifest.sha256"
DATABASE = "lorad.db"
KEYS = ("token", "server_key")

_FILE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}"
_NAME = re.compile(
    rf"lorad\.db|token|server_key|runs/\d{{1,18}}/spec\.json"
    rf"|adapters/\d{{1,18}}/versions/{_FILE}/{_FILE}|models/{_FILE}/{_FILE}"
)


def may_hold(name: str) -> bool:
    """Whether a backup may hold a file of this name."""
    return _NAME.fullmatch(name) is not None


class BackupFile(BaseModel):
    """One file by its name in the home."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: str
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class BackupModel(BaseModel):
    """A base model that the adapters of the home may need."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: str
    base_hash: str
    format: str
    weights: bool = Field(description="Whether its weights are in the backup.")


class BackupManifest(BaseModel):
    """The list at the beginning."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    backup_version: Literal[1]
    lorad: str
    schema_version: int = Field(ge=1)
    created_at: str
    keys: bool
    models: list[BackupModel]
    files: list[BackupFile]


class BackupError(Exception):
    """A backup can't be made or used; the message says why and what to do."""
