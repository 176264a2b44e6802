"""Making a backup while the daemon runs.

The database is copied first, at one instant, then the files of the versions that it names: those
never change, and are there before their rows are. If one is deleted meanwhile, all begins again.
"""

import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import IO

from service.backup.contents import (
    DATABASE,
    KEYS,
    MANIFEST,
    SEAL,
    BackupError,
    BackupFile,
    BackupManifest,
    BackupModel,
    may_hold,
)
from service.backup.leftovers import scratch_folder
from service.home import Home
from service.models import MANIFEST_NAME, ModelFolder
from service.models import Manifest as ModelManifest
from storage.snapshot import Snapshot, SnapshotError, take_snapshot

_ATTEMPTS = 5
_MODE = 0o600


class _ChangedError(Exception):
    """A file went or changed while it was being copied."""


def write_backup(
    home: Home, out: IO[bytes], scratch: Path, *, with_models: bool, with_keys: bool
) -> BackupManifest:
    """Write a backup of the home into the empty file ``out``.

    Args:
        home: with or without a daemon.
        out: seekable; its owner makes it durable.
        scratch: a folder for the copy of the database, which is gone when this returns.
        with_models: the base models' weights too.
        with_keys: the owner's token and the server key too.

    Raises:
        BackupError: there is no database, or files of the home went again and again.
        OSError: the disk is full, or a file can't be read.
    """
    folder = scratch_folder(scratch, ".lorad-backup-")
    gone: set[str] = set()
    try:
        for _ in range(_ATTEMPTS):
            copy = folder / DATABASE
            copy.unlink(missing_ok=True)
            try:
                snapshot = take_snapshot(home.database, copy)
                models = ModelFolder(home.models).every()
                files = dict(_files(home, models, copy, snapshot, gone, with_models, with_keys))
                manifest = _manifest(models, files, snapshot, with_models, with_keys)
                _write(out, manifest, files)
            except SnapshotError as error:
                raise BackupError(str(error)) from None
            except _ChangedError:
                out.seek(0)
                out.truncate()
                continue
            return manifest
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise BackupError("files of the home went while they were copied; try again")


def _files(
    home: Home,
    models: Sequence[ModelManifest],
    copy: Path,
    snapshot: Snapshot,
    gone: set[str],
    with_models: bool,
    with_keys: bool,
) -> Iterator[tuple[str, Path]]:
    """Each file by its name. ``gone`` are versions that an earlier attempt missed: if the database
    names one still, its files were lost long ago."""
    yield DATABASE, copy
    for path in snapshot.versions:
        if path not in gone:
            gone.add(path)
            yield from _folder(home, home.path / path)
            gone.remove(path)
    for run in snapshot.runs:
        spec = home.run(run) / "spec.json"
        if spec.is_file():
            yield spec.relative_to(home.path).as_posix(), spec
    for model in models:
        folder = home.models / model.name
        if with_models:
            yield from _folder(home, folder)
        else:
            name = (folder / MANIFEST_NAME).relative_to(home.path).as_posix()
            yield name, folder / MANIFEST_NAME
    for name in KEYS if with_keys else ():
        if (home.path / name).is_file():
            yield name, home.path / name


def _folder(home: Home, folder: Path) -> Iterator[tuple[str, Path]]:
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        raise _ChangedError from None
    for path in paths:
        name = path.relative_to(home.path).as_posix()
        if path.is_file() and not path.is_symlink() and may_hold(name):
            yield name, path


def _manifest(
    models: Sequence[ModelManifest],
    files: dict[str, Path],
    snapshot: Snapshot,
    with_models: bool,
    with_keys: bool,
) -> BackupManifest:
    return BackupManifest(
        backup_version=1,
        lorad=metadata.version("lorad"),
        schema_version=snapshot.schema,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        keys=with_keys,
        models=[_model(model, with_models) for model in models],
        files=[_described(name, path) for name, path in files.items()],
    )


def _model(model: ModelManifest, with_models: bool) -> BackupModel:
    return BackupModel(
        name=model.name, base_hash=model.base_hash, format=model.format, weights=with_models
    )


def _described(name: str, path: Path) -> BackupFile:
    with _opened(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return BackupFile(name=name, bytes=file.tell(), sha256=digest)


def _write(out: IO[bytes], manifest: BackupManifest, files: dict[str, Path]) -> None:
    listed = manifest.model_dump_json(indent=1).encode()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(_entry(MANIFEST, len(listed)), io.BytesIO(listed))
        for file in manifest.files:
            with _opened(files[file.name]) as source:
                watched = _Watched(source)
                try:
                    archive.addfile(_entry(file.name, file.bytes), watched)
                except OSError as error:
                    if watched.ended:  # it has become shorter
                        raise _ChangedError from error
                    raise
                if watched.digest.hexdigest() != file.sha256:
                    raise _ChangedError
        seal = hashlib.sha256(listed).hexdigest().encode()
        archive.addfile(_entry(SEAL, len(seal)), io.BytesIO(seal))


def _opened(path: Path) -> io.BufferedReader:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise _ChangedError from None


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, _MODE
    return entry


class _Watched(io.RawIOBase):
    """A file that hashes what is read of it."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.digest = hashlib.sha256()
        self.ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self.ended = self.ended or len(piece) < size
        self.digest.update(piece)
        return piece
