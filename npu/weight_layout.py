"""Where everything lies in a frozen-weight file: its header, written and strictly checked.

    offset        size   what
    0             8      magic
    8             8      H, the length of the header, little-endian
    16            32     SHA-256 of everything in the file except these 32 bytes
    48            H      header: JSON, UTF-8
    aligned       ...    raw little-endian tensors in header order, each aligned to 128 bytes
                         (a Hexagon vector), zero bytes between them; nothing after the last one

Offsets in the header count from the first aligned byte behind it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

WeightFormat = Literal["int8", "fp16"]

MAGIC = b"LORADWT1"
DIGEST_OFFSET = 16
DIGEST_BYTES = 32
HEADER_OFFSET = DIGEST_OFFSET + DIGEST_BYTES
ALIGNMENT = 128
LARGEST_HEADER = 16 << 20
"""A header of a 100-layer model is about 100 KiB; whatever claims more than 16 MiB is damaged."""

_CODE_BYTES: Mapping[str, int] = {"int8": 1, "fp16": 2}
_FLOAT_BYTES = 4


class WeightFileError(ValueError):
    """The frozen-weight file, or what should become one, is wrong; names the tensor or field."""


@dataclass(frozen=True)
class Extent:
    """A tensor's bytes, counted from the start of the data."""

    offset: int
    bytes: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.bytes


@dataclass(frozen=True)
class MatrixEntry:
    """A weight matrix [N, K] in the header; `scale` (fp32 [N]) exists for int8 only."""

    name: str
    format: WeightFormat
    shape: tuple[int, int]
    codes: Extent
    scale: Extent | None


@dataclass(frozen=True)
class VectorEntry:
    """A fp32 vector in the header."""

    name: str
    length: int
    data: Extent


@dataclass(frozen=True)
class Layout:
    """The whole header."""

    metadata: dict[str, Any]
    matrices: tuple[MatrixEntry, ...]
    vectors: tuple[VectorEntry, ...]

    def extents(self) -> Iterator[tuple[str, Extent]]:
        """Every tensor of the file as (label for error messages, extent), in header order."""
        for matrix in self.matrices:
            yield f"matrix '{matrix.name}' codes", matrix.codes
            if matrix.scale is not None:
                yield f"matrix '{matrix.name}' scale", matrix.scale
        for vector in self.vectors:
            yield f"vector '{vector.name}'", vector.data

    @property
    def data_bytes(self) -> int:
        """Bytes from the start of the data to the end of the last tensor."""
        return max((extent.end for _, extent in self.extents()), default=0)


def aligned(offset: int) -> int:
    """The next multiple of ALIGNMENT, `offset` itself included."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def data_start(header_bytes: int) -> int:
    """Where the tensors begin in a file whose JSON header has that many bytes."""
    return aligned(HEADER_OFFSET + header_bytes)


def plan_layout(
    metadata: Mapping[str, Any],
    matrices: Sequence[tuple[str, tuple[int, int]]],
    vectors: Sequence[tuple[str, int]],
    format: WeightFormat,
) -> Layout:
    """Lay the named matrices [N, K] and vectors [n] out one behind the other."""
    position = 0

    def place(size: int) -> Extent:
        nonlocal position
        extent = Extent(aligned(position), size)
        position = extent.end
        return extent

    matrix_entries = tuple(
        MatrixEntry(
            name=name,
            format=format,
            shape=shape,
            codes=place(shape[0] * shape[1] * _CODE_BYTES[format]),
            scale=place(shape[0] * _FLOAT_BYTES) if format == "int8" else None,
        )
        for name, shape in matrices
    )
    vector_entries = tuple(
        VectorEntry(name=name, length=length, data=place(length * _FLOAT_BYTES))
        for name, length in vectors
    )
    return Layout(dict(metadata), matrix_entries, vector_entries)


def encode_header(layout: Layout) -> bytes:
    """The layout as canonical JSON; equal layouts give equal bytes."""

    def extent(value: Extent) -> dict[str, int]:
        return {"offset": value.offset, "bytes": value.bytes}

    document = {
        "version": 1,
        "metadata": layout.metadata,
        "matrices": [
            {
                "name": entry.name,
                "format": entry.format,
                "shape": list(entry.shape),
                "codes": extent(entry.codes),
                "scale": extent(entry.scale) if entry.scale is not None else None,
            }
            for entry in layout.matrices
        ],
        "vectors": [
            {"name": entry.name, "shape": [entry.length], "data": extent(entry.data)}
            for entry in layout.vectors
        ],
    }
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise WeightFileError(
            f"field 'metadata': expected JSON values only, found one that isn't ({error}): "
            "give strings, finite numbers, lists and objects"
        ) from error
    return text.encode("ascii")


def decode_header(header: bytes, available: int) -> Layout:
    """The layout a header describes, checked against the `available` bytes of data behind it.

    Raises WeightFileError naming the tensor or the field that is wrong.
    """
    try:
        document = json.loads(
            header.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise WeightFileError(
            f"field 'header': expected JSON, found something else ({error}): the file is damaged, "
            "add the model again"
        ) from error
    root = _members(document, "header", {"version", "metadata", "matrices", "vectors"})
    if root["version"] != 1 or isinstance(root["version"], bool):
        raise WeightFileError(
            f"field 'version': expected 1, found {root['version']!r}: add the model again with "
            "this version of lorad"
        )
    if not isinstance(root["metadata"], dict):
        raise _wrong("metadata", "an object", root["metadata"])
    layout = Layout(
        metadata=root["metadata"],
        matrices=tuple(_matrix(item, i) for i, item in enumerate(_list(root, "matrices"))),
        vectors=tuple(_vector(item, i) for i, item in enumerate(_list(root, "vectors"))),
    )
    _check_names("matrix", [entry.name for entry in layout.matrices])
    _check_names("vector", [entry.name for entry in layout.vectors])
    _check_extents(layout, available)
    return layout


def _check_names(kind: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise WeightFileError(
                f"{kind} '{name}': expected each name once, found it twice: add the model again"
            )
        seen.add(name)


def _check_extents(layout: Layout, available: int) -> None:
    previous_label, previous_end = "", 0
    for label, extent in sorted(layout.extents(), key=lambda item: item[1].offset):
        if extent.offset % ALIGNMENT:
            raise WeightFileError(
                f"{label}: expected an offset that is a multiple of {ALIGNMENT}, found "
                f"{extent.offset}: the file is damaged, add the model again"
            )
        if extent.offset < previous_end:
            raise WeightFileError(
                f"{label}: expected bytes of its own, found that it overlaps {previous_label}: "
                "the file is damaged, add the model again"
            )
        if extent.end > available:
            raise WeightFileError(
                f"{label}: expected its bytes {extent.offset} to {extent.end} inside the file, "
                f"found only {available} bytes of data: the file is truncated, add the model again"
            )
        previous_label, previous_end = label, extent.end
    if available != layout.data_bytes:
        raise WeightFileError(
            f"field 'data': expected {layout.data_bytes} bytes, found {available}: "
            "the file is damaged, add the model again"
        )


def _matrix(item: object, index: int) -> MatrixEntry:
    where = f"matrices[{index}]"
    members = _members(item, where, {"name", "format", "shape", "codes", "scale"})
    name = _name(members, where)
    where = f"matrix '{name}'"
    format = members["format"]
    if format != "int8" and format != "fp16":
        raise _wrong(f"{where} format", "'int8' or 'fp16'", format)
    rows, columns = _shape(members, where, 2)
    codes = _extent(members["codes"], f"{where} codes", rows * columns * _CODE_BYTES[format])
    if format == "int8":
        scale = _extent(members["scale"], f"{where} scale", rows * _FLOAT_BYTES)
        return MatrixEntry(name, "int8", (rows, columns), codes, scale)
    if members["scale"] is not None:
        raise _wrong(f"{where} scale", "null, since fp16 codes are the weights", members["scale"])
    return MatrixEntry(name, "fp16", (rows, columns), codes, None)


def _vector(item: object, index: int) -> VectorEntry:
    where = f"vectors[{index}]"
    members = _members(item, where, {"name", "shape", "data"})
    name = _name(members, where)
    where = f"vector '{name}'"
    (length,) = _shape(members, where, 1)
    return VectorEntry(name, length, _extent(members["data"], where, length * _FLOAT_BYTES))


def _extent(item: object, where: str, expected_bytes: int) -> Extent:
    members = _members(item, where, {"offset", "bytes"})
    for field in ("offset", "bytes"):
        if type(members[field]) is not int or members[field] < 0:
            raise _wrong(f"{where} {field}", "an integer of 0 or more", members[field])
    if members["bytes"] != expected_bytes:
        raise _wrong(f"{where} bytes", f"{expected_bytes} for its shape", members["bytes"])
    return Extent(members["offset"], members["bytes"])


def _shape(members: Mapping[str, Any], where: str, rank: int) -> list[int]:
    shape = members["shape"]
    if (
        not isinstance(shape, list)
        or len(shape) != rank
        or any(type(size) is not int or size < 1 for size in shape)
    ):
        raise _wrong(f"{where} shape", f"{rank} positive integers", shape)
    return shape


def _name(members: Mapping[str, Any], where: str) -> str:
    name = members["name"]
    if not isinstance(name, str) or not name:
        raise _wrong(f"{where} name", "a name", name)
    return name


def _list(root: Mapping[str, Any], field: str) -> list[object]:
    value = root[field]
    if not isinstance(value, list):
        raise _wrong(field, "a list", value)
    return value


def _members(item: object, where: str, names: set[str]) -> dict[str, Any]:
    if not isinstance(item, dict) or set(item) != names:
        found = sorted(item) if isinstance(item, dict) else item
        raise _wrong(where, f"an object with exactly {sorted(names)}", found)
    return item


def _wrong(field: str, expected: str, found: object) -> WeightFileError:
    shown = repr(found)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return WeightFileError(
        f"{field}: expected {expected}, found {shown}: the file is damaged, add the model again"
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return result


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
