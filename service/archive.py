"""A version's files as one zip file: stored, and the same bytes every time."""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILE_MODE = 0o100644 << 16
_CHUNK = 256 * 1024


def zip_files(files: Sequence[Path], scratch: Path) -> IO[bytes]:
    """A zip of the files under their own names, open at its start, deleted when it is closed.

    It is put together in an unlinked file in ``scratch``, so that each entry's header can say
    size and checksum: readers that never seek (Java's ``ZipInputStream``) need them there.

    Raises:
        OSError: a file can't be read, or there is no room.
    """
    target: IO[bytes] = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - the caller closes it
    try:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for path in files:
                entry = zipfile.ZipInfo(path.name, _EPOCH)
                entry.external_attr = _FILE_MODE
                entry.file_size = path.stat().st_size
                with path.open("rb") as source, archive.open(entry, "w") as sink:
                    shutil.copyfileobj(source, sink, _CHUNK)
        target.seek(0)
    except BaseException:
        target.close()
        raise
    return target


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """The file's content piece by piece; closes it at the end."""
    with file:
        while piece := file.read(_CHUNK):
            yield piece
