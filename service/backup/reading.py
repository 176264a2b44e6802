"""Bringing a home back from a backup: all of it or nothing, and checked before anything moves.

FILE ──▶ .HOME.restoring-PID (every byte hashed, the database looked through) ──rename──▶ HOME
"""

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from service.backup.contents import (
    DATABASE,
    MANIFEST,
    SEAL,
    BackupError,
    BackupFile,
    BackupManifest,
    may_hold,
)
from service.backup.leftovers import scratch_folder
from service.durable import sync_folder
from service.home import Home
from service.locks import FileLock, is_held
from storage.snapshot import SnapshotError, check_snapshot, require_known_schema

_CHUNK = 1 << 20
_MOST_MANIFEST_BYTES = 64 * 1024 * 1024
_CUT = "it was cut, or damaged; take another copy of the backup"


@dataclass(frozen=True)
class Restored:
    """What is in the home now; ``aside`` is where the old one lies, if there was one."""

    manifest: BackupManifest
    aside: Path | None


def restore(source: Path, home: Home, *, replace: bool) -> Restored:
    """Make ``home`` what the backup at ``source`` holds.

    Args:
        source: a file of `service.backup.writing`.
        home: absent or empty; with ``replace`` a home that no daemon serves, which is moved aside.
        replace: whether it may have something in it.

    Raises:
        BackupError: the backup is damaged or of a newer lorad, or the home is in use or not empty.
        OSError: the disk is full, or a file can't be read or written.
    """
    place = Home.at(home.path.resolve())
    _require_room(place, replace=replace)
    place.path.parent.mkdir(parents=True, exist_ok=True)
    staging = scratch_folder(place.path.parent, f".{place.path.name}.restoring-")
    try:
        manifest = _unpack(source, staging)
        _leave_out_bare_models(staging, manifest)
        _sync(staging)
        aside = _put_in_place(staging, place, replace=replace)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Restored(manifest, aside)


def _require_room(home: Home, *, replace: bool) -> None:
    if not home.path.exists():
        return
    if not home.path.is_dir():
        raise BackupError(f"expected a folder or nothing at {home.path}, found a file")
    if is_held(home.daemon_lock) or is_held(home.worker_lock):
        raise BackupError(f"a daemon or its worker uses {home.path}; stop it first")
    if any(home.path.iterdir()) and not replace:
        raise BackupError(
            f"expected no home or an empty folder at {home.path}, found files; choose another with "
            "--home, or have it moved aside with --replace"
        )


def _unpack(source: Path, staging: Path) -> BackupManifest:
    try:
        with source.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            return _unpack_members(archive, staging)
    except (tarfile.TarError, EOFError):
        raise BackupError(f"{source} is no whole backup: {_CUT}") from None
    except (BackupError, SnapshotError) as error:
        raise BackupError(f"{source} can't be restored: {error}") from None


def _unpack_members(archive: tarfile.TarFile, staging: Path) -> BackupManifest:
    members = iter(archive)
    manifest, listed = _read_manifest(archive, members)
    require_known_schema(manifest.schema_version)
    wanted = {file.name: file for file in manifest.files}
    if len(wanted) != len(manifest.files) or DATABASE not in wanted:
        raise BackupError(_CUT)
    for name in wanted:
        if not may_hold(name):
            raise BackupError("it names a file that no backup of a home has; don't use it")
    for member in members:
        if member.name == SEAL and not wanted:
            sealed = _content(archive, member, 64) == hashlib.sha256(listed).hexdigest().encode()
            if not sealed or next(members, None) is not None:
                raise BackupError(_CUT)
            break
        file = wanted.pop(member.name, None)
        if file is None or not member.isreg() or member.size != file.bytes:
            raise BackupError(_CUT)
        _extract(archive, member, file, staging)
    else:
        raise BackupError(_CUT)
    check_snapshot(staging / DATABASE, manifest.schema_version)
    return manifest


def _read_manifest(
    archive: tarfile.TarFile, members: Iterator[tarfile.TarInfo]
) -> tuple[BackupManifest, bytes]:
    first = next(members, None)
    if first is None or first.name != MANIFEST:
        raise BackupError("it is no backup of lorad's")
    listed = _content(archive, first, _MOST_MANIFEST_BYTES)
    try:
        return BackupManifest.model_validate_json(listed), listed
    except ValidationError:
        raise BackupError(
            "its list can't be read: it was damaged, or a newer lorad made it"
        ) from None


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes:
    stream = archive.extractfile(member) if member.isreg() and member.size <= most else None
    if stream is None:
        raise BackupError(_CUT)
    return stream.read()


def _extract(
    archive: tarfile.TarFile, member: tarfile.TarInfo, file: BackupFile, staging: Path
) -> None:
    target = staging / file.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    stream = archive.extractfile(member)
    assert stream is not None  # a regular file has content
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb") as out:
        while piece := stream.read(_CHUNK):
            digest.update(piece)
            out.write(piece)
    if digest.hexdigest() != file.sha256:
        raise BackupError(f"{file.name} in it isn't what was backed up: {_CUT}")


def _leave_out_bare_models(staging: Path, manifest: BackupManifest) -> None:
    """A model's folder without weights would keep `lorad model add` from adding it."""
    for model in manifest.models:
        if not model.weights:
            shutil.rmtree(staging / "models" / model.name, ignore_errors=True)


def _put_in_place(staging: Path, home: Home, *, replace: bool) -> Path | None:
    """Rename the staged home to its place, the old one aside first."""
    _require_room(home, replace=replace)
    if not home.path.exists() or not any(home.path.iterdir()):
        staging.rename(home.path)
        sync_folder(home.path.parent)
        return None
    lock = FileLock.take(home.daemon_lock)
    if lock is None:
        raise BackupError(f"a daemon serves {home.path}; stop it first")
    try:
        aside = home.path.with_name(
            f"{home.path.name}.before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        )
        home.path.rename(aside)
        try:
            staging.rename(home.path)
        except OSError:
            aside.rename(home.path)
            raise
        sync_folder(home.path.parent)
    finally:
        lock.release()
    return aside


def _sync(folder: Path) -> None:
    """Put everything in the folder on the disk."""
    for root, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(Path(root) / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(root))
