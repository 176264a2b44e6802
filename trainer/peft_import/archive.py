"""The two files of a PEFT adapter, out of a zip file that may be anything.

Nothing else in it is read, and no name in it becomes a path: a name with `..` in it could write
nowhere. What is written is counted, so an entry that says it is small can't fill the disk.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from trainer.export.peft import CONFIG_FILE, TENSOR_FILE
from trainer.peft_import.refused import ImportRefusedError

_LARGEST_CONFIG = 1 << 20
_MOST_ENTRIES = 1000
_CHUNK = 1 << 20
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_ENCRYPTED = 0x1


def extract(archive: IO[bytes], folder: Path, largest_tensors: int) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors` of the zip into `folder`.

    They may lie in a folder of the zip, but in one and the same.

    Args:
        archive: seekable.
        folder: an existing one.
        largest_tensors: bytes that the tensors' file may have.

    Raises:
        ImportRefusedError: it is no zip file, or the two aren't in it, whole and in bounds.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            if len(entries) > _MOST_ENTRIES:
                raise ImportRefusedError(
                    f"expected a zip file with at most {_MOST_ENTRIES} entries, found"
                    f" {len(entries)}; zip the adapter's folder alone"
                )
            config, tensors = _entry(entries, CONFIG_FILE), _entry(entries, TENSOR_FILE)
            if PurePosixPath(config.filename).parent != PurePosixPath(tensors.filename).parent:
                raise ImportRefusedError(
                    f"expected {CONFIG_FILE} and {TENSOR_FILE} in one folder of the zip file, found"
                    " them in two; zip one adapter's folder"
                )
            _copy(opened, config, folder / CONFIG_FILE, _LARGEST_CONFIG)
            _copy(opened, tensors, folder / TENSOR_FILE, largest_tensors)
    except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeError, NotImplementedError) as error:
        raise ImportRefusedError(
            f"expected a whole zip file, found one that can't be read ({error}); zip the adapter's"
            " folder again"
        ) from None


def _entry(entries: list[zipfile.ZipInfo], name: str) -> zipfile.ZipInfo:
    found = [entry for entry in entries if PurePosixPath(entry.filename).name == name]
    if len(found) != 1:
        raise ImportRefusedError(
            f"expected one {name} in the zip file, found {len(found)}; zip what"
            " peft's save_pretrained wrote, with safe_serialization"
        )
    [entry] = found
    if entry.compress_type not in _METHODS or entry.flag_bits & _ENCRYPTED:
        raise ImportRefusedError(
            f"expected {name} stored or deflated, found it encrypted or packed in another way; zip"
            " it again"
        )
    return entry


def _copy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, to: Path, largest: int) -> None:
    size = 0
    with archive.open(entry) as source, to.open("wb") as target:
        while size <= largest and (part := source.read(_CHUNK)):
            size += len(part)
            target.write(part)
    if size > largest:
        raise ImportRefusedError(
            f"expected {to.name} of at most {largest} bytes, found more; it isn't of an adapter"
            " with this rank and these targets"
        )
