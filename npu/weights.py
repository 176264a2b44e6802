"""The frozen weights of one base model: one file, mapped read-only, one copy of every matrix.

The file's layout is in `weight_layout.py`. Its content hash is the base model's identity.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from npu.durable import sync
from npu.frozen_matrix import FrozenMatrix
from npu.quantize import Quantized, quantize
from npu.weight_layout import (
    BLOCK,
    BLOCK_FORMATS,
    DIGEST_BYTES,
    DIGEST_OFFSET,
    HEADER_OFFSET,
    LARGEST_HEADER,
    MAGIC,
    Extent,
    Layout,
    MatrixEntry,
    WeightFileError,
    WeightFormat,
    data_start,
    decode_header,
    encode_header,
    plan_layout,
)

__all__ = [
    "FrozenMatrix",
    "FrozenWeights",
    "MatrixSource",
    "WeightFileError",
    "WeightFormat",
    "write_frozen_weights",
]

_CODE_DTYPE: Mapping[WeightFormat, np.dtype[Any]] = {
    "int8": np.dtype("int8"),
    "fp16": np.dtype("<f2"),
    "int4": np.dtype("uint8"),
    "int4_min": np.dtype("uint8"),
}
_FLOAT16 = np.dtype("<f2")
_FLOAT32 = np.dtype("<f4")


class FrozenWeights:
    """An open frozen-weight file. Its arrays are read-only views of the mapped file."""

    metadata: dict[str, Any]
    content_hash: str
    matrices: Mapping[str, FrozenMatrix]
    vectors: Mapping[str, npt.NDArray[np.float32]]

    def __init__(self, mapped: mmap.mmap, layout: Layout, content_hash: str, start: int) -> None:
        """Take over an open mapping; use `open`."""
        self._mapped = mapped
        self.metadata = layout.metadata
        self.content_hash = content_hash

        def view(extent: Extent, dtype: np.dtype[Any], *shape: int) -> npt.NDArray[Any]:
            count = extent.bytes // dtype.itemsize
            return np.frombuffer(mapped, dtype, count, start + extent.offset).reshape(shape)

        self.matrices = MappingProxyType(
            {
                entry.name: FrozenMatrix(
                    name=entry.name,
                    format=entry.format,
                    codes=view(entry.codes, _CODE_DTYPE[entry.format], *_code_shape(entry)),
                    scale=_scale(entry, view),
                    offset=None
                    if entry.offset is None
                    else view(entry.offset, _FLOAT16, *_blocks(entry.shape)),
                )
                for entry in layout.matrices
            }
        )
        self.vectors = MappingProxyType(
            {entry.name: view(entry.data, _FLOAT32, entry.length) for entry in layout.vectors}
        )

    @property
    def bytes(self) -> int:
        """Of the whole file."""
        return len(self._mapped)

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> FrozenWeights:
        """Map the file at `path` after checking its header; `verify` also re-hashes its content.

        Raises WeightFileError naming the tensor or field that is wrong, OSError if the file
        can't be read.
        """
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header_bytes = _header_bytes(file.read(HEADER_OFFSET), size)
            mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        try:
            header = mapped[HEADER_OFFSET : HEADER_OFFSET + header_bytes]
            start = data_start(header_bytes)
            layout = decode_header(header, max(0, size - start))
            digest = mapped[DIGEST_OFFSET:HEADER_OFFSET]
            if verify:
                _verify(mapped, digest)
        except BaseException:
            mapped.close()
            raise
        return cls(mapped, layout, f"sha256:{digest.hex()}", start)

    def close(self) -> None:
        """Let go of the mapping; arrays still held elsewhere stay valid and keep it alive."""
        self.matrices = MappingProxyType({})
        self.vectors = MappingProxyType({})
        with suppress(BufferError):
            self._mapped.close()


def _blocks(shape: tuple[int, int]) -> tuple[int, int]:
    return shape[0], shape[1] // BLOCK


def _code_shape(entry: MatrixEntry) -> tuple[int, int]:
    rows, columns = entry.shape
    return rows, columns // 2 if entry.format in BLOCK_FORMATS else columns


def _scale(entry: MatrixEntry, view: Callable[..., npt.NDArray[Any]]) -> npt.NDArray[Any] | None:
    if entry.scale is None:
        return None
    if entry.format == "int8":
        return view(entry.scale, _FLOAT32, entry.shape[0])
    return view(entry.scale, _FLOAT16, *_blocks(entry.shape))


@dataclass(frozen=True)
class MatrixSource:
    """A matrix to be written: its shape (N, K) now, its values when they are due.

    `load` gives fp32 [N, K]. Where the source has the matrix as 4-bit blocks itself, `native` names
    their format and `load_native` gives them, so that they are kept and not quantised again.
    """

    name: str
    shape: tuple[int, int]
    load: Callable[[], npt.NDArray[np.float32]]
    native: WeightFormat | None = None
    load_native: Callable[[], Quantized] | None = None


def write_frozen_weights(
    path: Path,
    metadata: Mapping[str, Any],
    matrices: Sequence[MatrixSource],
    vectors: Mapping[str, npt.NDArray[np.float32]],
    *,
    format: WeightFormat | Mapping[str, WeightFormat] = "int8",
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """Write the file at `path`, holding one matrix in memory at a time; its content hash.

    `format` is that of all matrices, or each one's by name. A source whose native format is the one
    asked for is written as it is.

    Equal input gives equal bytes. The file appears complete or not at all: it is written beside
    `path`, synced and renamed, and on any error nothing is left behind. `progress(done, total)`
    counts matrices.

    Raises WeightFileError naming the matrix, vector or field that is wrong; whatever a `load`
    raises passes through.
    """
    formats = {
        source.name: format if isinstance(format, str) else format[source.name]
        for source in matrices
    }
    layout = plan_layout(
        metadata,
        [(source.name, source.shape, formats[source.name]) for source in matrices],
        [(name, vector.size) for name, vector in vectors.items()],
    )
    header = encode_header(layout)
    decode_header(header, layout.data_bytes)
    with _new_file(path) as file:
        digest = hashlib.sha256()
        position = 0

        def write(data: bytes | memoryview) -> None:
            nonlocal position
            digest.update(data)
            position += file.write(data)

        def write_at(offset: int, array: npt.NDArray[Any]) -> None:
            write(bytes(offset - position))
            write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

        write(MAGIC + len(header).to_bytes(8, "little"))
        position += file.write(bytes(DIGEST_BYTES))
        write(header)
        start = data_start(len(header))
        if progress is not None:
            progress(0, len(matrices))
        for done, (source, matrix) in enumerate(zip(matrices, layout.matrices, strict=True), 1):
            encoded = _encode(source, matrix.format)
            write_at(start + matrix.codes.offset, encoded.codes)
            for extent, part in ((matrix.scale, encoded.scale), (matrix.offset, encoded.offset)):
                if extent is not None and part is not None:
                    write_at(start + extent.offset, part)
            if progress is not None:
                progress(done, len(matrices))
        for vector in layout.vectors:
            write_at(start + vector.data.offset, _encode_vector(vector.name, vectors[vector.name]))
        file.seek(DIGEST_OFFSET)
        file.write(digest.digest())
    return f"sha256:{digest.hexdigest()}"


def _encode(source: MatrixSource, format: WeightFormat) -> Quantized:
    where = f"matrix '{source.name}'"
    if source.native == format and source.load_native is not None:
        return _checked(source.load_native(), source, format)
    values = source.load()
    if values.dtype != np.float32 or values.shape != source.shape:
        raise WeightFileError(
            f"{where}: expected float32 {list(source.shape)}, found {values.dtype} "
            f"{list(values.shape)}: check how the source model is read"
        )
    try:
        return quantize(values, format)
    except ValueError as error:
        raise WeightFileError(f"{where}: {error}") from error


def _checked(native: Quantized, source: MatrixSource, format: WeightFormat) -> Quantized:
    """What a source gave as its own blocks, refused unless it fills its place in the file."""
    blocks = _blocks(source.shape)
    expected = (
        (np.uint8, (source.shape[0], source.shape[1] // 2)),
        (np.float16, blocks),
        (np.float16, blocks) if format == "int4_min" else None,
    )
    parts = (native.codes, native.scale, native.offset)
    found = tuple(None if part is None else (part.dtype.type, part.shape) for part in parts)
    if found != expected:
        raise WeightFileError(
            f"matrix '{source.name}': expected codes, scale and offset of {format} for "
            f"{list(source.shape)}, found {found}: check how the source model is read"
        )
    return native


def _encode_vector(name: str, vector: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    if vector.ndim != 1 or not np.can_cast(vector.dtype, np.float32):
        raise WeightFileError(
            f"vector '{name}': expected float32 [n], found {vector.dtype} {list(vector.shape)}: "
            "convert it first"
        )
    if not np.isfinite(vector).all():
        raise WeightFileError(
            f"vector '{name}': expected finite values, found others: repair the source model"
        )
    return vector.astype(_FLOAT32)


def _header_bytes(prefix: bytes, size: int) -> int:
    if prefix[: len(MAGIC)] != MAGIC:
        raise WeightFileError(
            f"field 'magic': expected {MAGIC!r}, found {prefix[: len(MAGIC)]!r}: "
            "this is not a frozen-weight file, add the model again"
        )
    length = int.from_bytes(prefix[len(MAGIC) : DIGEST_OFFSET], "little")
    largest = min(LARGEST_HEADER, size - HEADER_OFFSET)
    if len(prefix) < HEADER_OFFSET or length > largest:
        raise WeightFileError(
            f"field 'header length': expected at most {max(0, largest)} bytes, found {length}: "
            "the file is truncated or damaged, add the model again"
        )
    return length


def _verify(mapped: mmap.mmap, stored: bytes) -> None:
    digest = hashlib.sha256(mapped[:DIGEST_OFFSET])
    with memoryview(mapped) as everything, everything[HEADER_OFFSET:] as content:
        digest.update(content)
    if digest.digest() != stored:
        raise WeightFileError(
            f"field 'content hash': expected sha256:{stored.hex()}, found "
            f"sha256:{digest.hexdigest()}: the file is damaged, add the model again"
        )


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that replaces `path`, durably, when the block ends well, and vanishes otherwise."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)
